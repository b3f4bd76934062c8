package decode

// rawField is the one field of the format raw.
const rawField = "payload"

// rawDecoder makes the whole payload one String, whatever its bytes are.
type rawDecoder struct {
	at  int
	doc Document
}

func newRaw(f *Fields) *rawDecoder {
	return &rawDecoder{at: f.Index(rawField), doc: Document{values: make([]Value, f.Len())}}
}

// Decode implements Decoder.
func (d *rawDecoder) Decode(payload []byte, emit func(*Document) error) error {
	if d.at >= 0 {
		v := Value{Kind: Null} // a Kafka record without a value: a tombstone
		if payload != nil {
			v = Value{Kind: String, Bytes: payload}
		}
		d.doc.values[d.at] = v
	}
	return emit(&d.doc)
}
