package decode_test

import (
	"strings"
	"testing"

	"sluice/pipeline/decode"
)

// Every path that leads to a value is in the shape, and of those that are not the
// names beside them are known.
func TestShape(t *testing.T) {
	t.Parallel()
	avro := (&decode.Options{Format: "avro", Schema: testFile(t, "event.avsc")}).Shape()
	message := protobufOptions(t, "shop.v1.Event").Shape()
	for _, tt := range []struct {
		shape *decode.Shape
		path  string
		steps int // that there are; all where next is "-"
		next  string
	}{
		{avro, "user", 1, "-"},
		{avro, "usr", 0, "id user count"},
		{avro, "user.name", 1, ""},
		{avro, "tags[7]", 2, "-"},
		{avro, "tags.x", 1, ""},
		{avro, "labels.anything", 2, "-"},
		{avro, "labels.anything.more", 2, ""},
		{avro, "geo.country", 2, "-"},
		{avro, "geo.county", 1, "geo.country geo.at"},
		{avro, "tree.next.next.next.v", 5, "-"},
		{avro, "tree.next.nxt", 2, "tree.next.v tree.next.next"},
		{message, "user_name", 1, "-"},
		{message, "userName", 1, "-"},
		{message, "usrName", 0, "id userName nick"},
		{message, "userName.x", 1, ""},
		{message, "tags[0]", 2, "-"},
		{message, "tags", 1, "-"},
		{message, "tags.x", 1, ""},
		{message, "tags[0].x", 2, ""},
		{message, "labels.n", 2, "-"},
		{message, "labels[0]", 1, ""},
		{message, "places.x.country", 3, "-"},
		{message, "places.x.county", 2, "places.x.country places.x.at places.x.outer"},
		{message, "list[0].outer.at[1]", 5, "-"},
		{message, "at.seconds", 1, ""},
		{message, "maybe.value", 1, ""},
		{message, "meta.what.ever[3]", 4, "-"},
		{message, "tree.value.what", 3, "-"},
	} {
		steps, err := decode.ParsePath(tt.path)
		if err != nil {
			t.Fatal(err)
		}
		n, next, lacks := tt.shape.Lacks(steps)
		if lacks != (tt.next != "-") || n != tt.steps || lacks && !strings.HasPrefix(strings.Join(next, " "), tt.next) || tt.next == "" && len(next) > 0 {
			t.Errorf("%s: got %d steps, then %v, lacks %v", tt.path, n, next, lacks)
		}
	}
	for _, f := range avroFields {
		steps, err := decode.ParsePath(f.path)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, lacks := avro.Lacks(steps); lacks && !strings.HasPrefix(f.want, "missing:") {
			t.Errorf("%s is %s and not in the shape", f.path, f.want)
		}
	}
	if s := (&decode.Options{Format: "avro", Framing: "container"}).Shape(); s != nil {
		t.Errorf("a container has a shape: %v", s)
	}
}
