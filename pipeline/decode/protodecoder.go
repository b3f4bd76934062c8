package decode

// protobufDecoder reads one message of Protobuf: the one that the options name, or
// that the payload does in Confluent's framing.
type protobufDecoder struct {
	protoReader
	fields  *Fields
	message *protoPlan           // nil = of the registry
	schemas compiled[*protoFile] // of the registry
}

func newProtobuf(o *Options, f *Fields) (*protobufDecoder, error) {
	d := &protobufDecoder{fields: f}
	d.doc.values = make([]Value, f.Len())
	d.json, d.plans = newJSON(f, false), map[protoWant]*protoPlan{}
	if o.Framing == framingConfluent {
		d.schemas = compiled[*protoFile]{
			format: formatProtobuf, schemas: o.Schemas, typ: SchemaProtobuf,
			byID: map[int]compiledSchema[*protoFile]{}, compile: newProtoFile,
		}
		return d, nil
	}
	m, err := protoFromSet(o.Schema, o.Message)
	if err != nil {
		return nil, err
	}
	d.message = d.plan(m, f.root)
	return d, nil
}

// Forget implements Forgetter.
func (d *protobufDecoder) Forget() {
	d.start(nil)
	d.doc.clear()
	d.json.b = nil
	d.json.doc.clear()
}

// Decode implements Decoder.
func (d *protobufDecoder) Decode(payload []byte, emit func(*Document) error) error {
	if payload == nil { // a tombstone; an empty message is no bytes at all
		return &Error{Format: formatProtobuf, Reason: "the record has no payload"}
	}
	d.start(payload)
	plan, at := d.message, 0
	if plan == nil {
		var err error
		if plan, at, err = d.registered(payload); err != nil {
			return err
		}
	}
	if !d.read(at, len(payload), plan, 1) {
		return d.err
	}
	return emit(&d.doc)
}

// registered returns the message that a payload in Confluent's framing is, and
// where that begins.
func (d *protobufDecoder) registered(payload []byte) (*protoPlan, int, error) {
	id, reason := unframe(payload)
	if reason != "" {
		return nil, 0, &Error{Format: formatProtobuf, Reason: reason}
	}
	f, err := d.schemas.of(id)
	if err != nil {
		return nil, 0, err
	}
	m, n, reason := f.message(payload[frameBytes:])
	if reason != "" {
		return nil, 0, &Error{Format: formatProtobuf, Position: frameBytes, Reason: reason}
	}
	place := payload[frameBytes : frameBytes+n]
	p := f.plans[string(place)]
	if p == nil {
		clear(d.plans) // plans of other schemas keep what they have
		p = d.plan(f.types.of(m), d.fields.root)
		if len(f.plans) >= maxCompiled { // a place can be spelled in many ways
			clear(f.plans)
		}
		f.plans[string(place)] = p
	}
	return p, frameBytes + n, nil
}
