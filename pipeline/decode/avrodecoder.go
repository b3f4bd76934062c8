package decode

func newAvroReader(f *Fields) avroReader {
	return avroReader{format: formatAvro, doc: Document{values: make([]Value, f.Len())}, plans: map[avroWant]*avroPlan{}}
}

// avroDecoder reads one value of Avro's binary encoding: of the schema that the
// options give, or of the one that the payload names by its id in a registry.
type avroDecoder struct {
	avroReader
	plan    *avroPlan           // nil = of the registry
	schemas compiled[*avroPlan] // of the registry
}

func newAvro(o *Options, f *Fields) (*avroDecoder, error) {
	d := &avroDecoder{avroReader: newAvroReader(f)}
	if o.Framing == framingConfluent {
		d.schemas = compiled[*avroPlan]{
			format: formatAvro, schemas: o.Schemas, typ: SchemaAvro, byID: map[int]compiledSchema[*avroPlan]{},
			compile: func(s *Schema) (*avroPlan, error) {
				references := make([][]byte, len(s.References))
				for i := range s.References {
					references[i] = s.References[i].Text
				}
				t, err := parseAvro(s.Text, references...)
				if err != nil {
					return nil, err
				}
				return d.avroReader.plan(t, f)
			},
		}
		return d, nil
	}
	t, err := parseAvro(o.Schema)
	if err == nil {
		d.plan, err = d.avroReader.plan(t, f)
	}
	return d, err
}

// Forget implements Forgetter.
func (d *avroDecoder) Forget() {
	d.start(nil)
	d.doc.clear()
}

// Decode implements Decoder.
func (d *avroDecoder) Decode(payload []byte, emit func(*Document) error) error {
	d.start(payload)
	plan, at := d.plan, 0
	if plan == nil {
		id, reason := unframe(payload)
		if reason != "" {
			return &Error{Format: formatAvro, Reason: reason}
		}
		var err error
		if plan, err = d.schemas.of(id); err != nil {
			return err
		}
		at = frameBytes
	} else if len(payload) == 0 {
		return &Error{Format: formatAvro, Reason: "the payload is empty"}
	}
	end := d.document(at, plan)
	if end >= 0 && end < len(payload) {
		end = d.fail(end, "the payload goes on after its value")
	}
	if end < 0 {
		return d.err
	}
	return emit(&d.doc)
}
