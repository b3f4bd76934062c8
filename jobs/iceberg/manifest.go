package iceberg

import (
	"encoding/json"
	"fmt"
	"path"
	"strconv"
	"strings"

	"sluice/jobs/columnar"
)

// Statuses of the entries of manifests.
const (
	statusAdded   = 1
	statusDeleted = 2
)

// What the files of entries hold.
const (
	contentData      = 0
	contentPositions = 1 // rows of data files that are none of the table, by place
	contentEquality  = 2 // values of columns: rows with them of files before are none of the table
)

// manifestEntries is how many entries a manifest has at most: some MB, which readers take
// side by side.
const manifestEntries = 20_000

// manifestFile is a manifest as the list of a snapshot has it.
type manifestFile struct {
	name        string // in the directory of the metadata
	bytes       int
	spec        int
	deletes     bool  // its files say which rows are none of the table
	sequence    int64 // of the snapshot that it came with
	minSequence int64 // of its files
	snapshot    int64 // that it came with
	added       totals
	deleted     totals
}

// listSchema is the schema of a manifest list (Iceberg's Manifest Lists, v2).
const listSchema = `{"type":"record","name":"manifest_file","fields":[` +
	`{"name":"manifest_path","type":"string","field-id":500},` +
	`{"name":"manifest_length","type":"long","field-id":501},` +
	`{"name":"partition_spec_id","type":"int","field-id":502},` +
	`{"name":"content","type":"int","field-id":517},` +
	`{"name":"sequence_number","type":"long","field-id":515},` +
	`{"name":"min_sequence_number","type":"long","field-id":516},` +
	`{"name":"added_snapshot_id","type":"long","field-id":503},` +
	`{"name":"added_files_count","type":"int","field-id":504},` +
	`{"name":"existing_files_count","type":"int","field-id":505},` +
	`{"name":"deleted_files_count","type":"int","field-id":506},` +
	`{"name":"added_rows_count","type":"long","field-id":512},` +
	`{"name":"existing_rows_count","type":"long","field-id":513},` +
	`{"name":"deleted_rows_count","type":"long","field-id":514}]}`

// entrySchema returns the schema of a manifest of files that are divided by these fields
// (Iceberg's Manifests, v2).
func entrySchema(spec *partitionSpec, columns []*columnar.Column) string {
	var parts strings.Builder
	for i := range spec.Fields {
		if i > 0 {
			parts.WriteByte(',')
		}
		typ := map[columnar.Type]string{columnar.String: "string", columnar.Int64: "long", columnar.Bool: "boolean"}[columns[i].Type]
		fmt.Fprintf(&parts, `{"name":%q,"type":["null",%q],"default":null,"field-id":%d}`, avroName(spec.Fields[i].Name), typ, spec.Fields[i].ID)
	}
	bounds := func(name string, id, key, value int) string {
		return fmt.Sprintf(`{"name":%q,"type":["null",{"type":"array","items":{"type":"record","name":"k%d_v%d","fields":[`+
			`{"name":"key","type":"int","field-id":%d},{"name":"value","type":"bytes","field-id":%d}]},"logicalType":"map"}],"default":null,"field-id":%d}`,
			name, key, value, key, value, id)
	}
	return `{"type":"record","name":"manifest_entry","fields":[` +
		`{"name":"status","type":"int","field-id":0},` +
		`{"name":"snapshot_id","type":["null","long"],"default":null,"field-id":1},` +
		`{"name":"sequence_number","type":["null","long"],"default":null,"field-id":3},` +
		`{"name":"file_sequence_number","type":["null","long"],"default":null,"field-id":4},` +
		`{"name":"data_file","type":{"type":"record","name":"r2","fields":[` +
		`{"name":"content","type":"int","field-id":134},` +
		`{"name":"file_path","type":"string","field-id":100},` +
		`{"name":"file_format","type":"string","field-id":101},` +
		`{"name":"partition","type":{"type":"record","name":"r102","fields":[` + parts.String() + `]},"field-id":102},` +
		`{"name":"record_count","type":"long","field-id":103},` +
		`{"name":"file_size_in_bytes","type":"long","field-id":104},` +
		bounds("lower_bounds", 125, 126, 127) + `,` +
		bounds("upper_bounds", 128, 129, 130) + `,` +
		`{"name":"equality_ids","type":["null",{"type":"array","items":"int","element-id":136}],"default":null,"field-id":135},` +
		`{"name":"sort_order_id","type":["null","int"],"default":null,"field-id":140}` +
		`]},"field-id":2}]}`
}

// avroName returns a name as Avro takes it, by the rules of Iceberg's own writers; readers
// go by ids.
func avroName(name string) string {
	var b strings.Builder
	for i, c := range name {
		digit := c >= '0' && c <= '9'
		switch {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || digit && i > 0:
			b.WriteRune(c)
		case digit:
			b.WriteString("_" + string(c))
		default:
			fmt.Fprintf(&b, "_x%X", c)
		}
	}
	return b.String()
}

// entries is what the entries of some manifests have in common.
type entries struct {
	run      *Run
	schema   *schema
	spec     partitionSpec
	order    int // of the rows in a file
	status   int
	snapshot int64 // in which they got this status
	sequence int64 // in which they were added; of added ones readers know it from the list
	location string
	bounded  int32 // the field that files have bounds of; 0 = none
	content  int
	identity int32 // the field of contentEquality
}

// manifests encodes manifests of the files of e and calls each with it.
func (e *entries) manifests(each func(data []byte, files []File) error) error {
	columns := make([]*columnar.Column, len(e.spec.Fields))
	for i, f := range e.spec.Fields {
		var err error
		if columns[i], err = column(e.run.Columns, f.Name); err != nil {
			return err
		}
	}
	schema, err := json.Marshal(e.schema)
	if err != nil {
		return err
	}
	spec, err := json.Marshal(e.spec.Fields)
	if err != nil {
		return err
	}
	content := "data"
	if e.content != contentData {
		content = "deletes"
	}
	for files := e.run.Files; len(files) > 0; {
		part := files[:min(len(files), manifestEntries)]
		files = files[len(part):]
		out := newAvroFile(entrySchema(&e.spec, columns), map[string]string{
			"schema": string(schema), "schema-id": strconv.Itoa(e.schema.ID), "partition-spec": string(spec), "partition-spec-id": strconv.Itoa(e.spec.ID),
			"format-version": "2", "content": content,
		})
		for i := range part {
			if err := e.entry(&out.block, &part[i], columns); err != nil {
				return fmt.Errorf("%s: %w", part[i].Path, err)
			}
			if err := out.added(); err != nil {
				return err
			}
		}
		data, err := out.close()
		if err != nil {
			return err
		}
		if err := each(data, part); err != nil {
			return err
		}
	}
	return nil
}

// entry appends the entry of f.
func (e *entries) entry(v *avroValue, f *File, columns []*columnar.Column) error {
	v.long(int64(e.status))
	v.some()
	v.long(e.snapshot)
	for range 2 { // of the data, and of the file
		if e.status == statusAdded {
			v.none() // from the list
			continue
		}
		v.some()
		v.long(e.sequence)
	}
	v.long(int64(e.content))
	v.bytes([]byte(e.location + "/" + path.Join(e.run.Dir, f.Path)))
	v.bytes([]byte("PARQUET"))
	for i, c := range columns {
		value, err := partitionValue(c, f.Partition[i])
		if err != nil {
			return err
		}
		v.optional(value)
	}
	v.long(f.Rows)
	v.long(f.Bytes)
	for _, bound := range [][]byte{f.Min, f.Max} {
		if e.bounded == 0 || f.Rows == 0 {
			v.none()
			continue
		}
		v.some()
		v.long(1) // a block of one
		v.long(int64(e.bounded))
		v.bytes(bound)
		v.long(0)
	}
	if e.identity == 0 {
		v.none()
	} else {
		v.some()
		v.long(1) // a block of one
		v.long(int64(e.identity))
		v.long(0)
	}
	if e.content == contentPositions { // they are in the order of their places
		v.none()
		return nil
	}
	v.some()
	v.long(int64(e.order))
	return nil
}

// encodeList encodes the list of a snapshot's manifests, which lie in dir.
func encodeList(s *snapshot, dir string, manifests []manifestFile) ([]byte, error) {
	out := newAvroFile(listSchema, map[string]string{
		"snapshot-id": strconv.FormatInt(s.ID, 10), "parent-snapshot-id": parentText(s.Parent), "sequence-number": strconv.FormatInt(s.Sequence, 10), "format-version": "2",
	})
	for i := range manifests {
		m, v := &manifests[i], &out.block
		v.bytes([]byte(dir + "/" + m.name))
		v.long(int64(m.bytes))
		v.long(int64(m.spec))
		if m.deletes {
			v.long(1)
		} else {
			v.long(0)
		}
		v.long(m.sequence)
		v.long(m.minSequence)
		v.long(m.snapshot)
		v.long(int64(m.added.files))
		v.long(0)
		v.long(int64(m.deleted.files))
		v.long(m.added.rows)
		v.long(0)
		v.long(m.deleted.rows)
		if err := out.added(); err != nil {
			return nil, err
		}
	}
	return out.close()
}

// parentText writes the id of a snapshot's parent as Iceberg's own writers do.
func parentText(id int64) string {
	if id == 0 {
		return "null"
	}
	return strconv.FormatInt(id, 10)
}

// decodeList decodes what encodeList has encoded, of manifests that lie in dir. Its error wraps
// ErrForeign where that is something else.
func decodeList(data []byte, dir string) ([]manifestFile, error) {
	in, err := openAvro(data, listSchema)
	if err != nil {
		return nil, err
	}
	var list []manifestFile
	for in.next() {
		place := string(in.bytes())
		f := manifestFile{name: path.Base(place), bytes: in.int(), spec: in.int()}
		f.deletes = in.int() == 1
		f.sequence, f.minSequence, f.snapshot = in.long(), in.long(), in.long()
		f.added.files = in.int()
		existing := in.int()
		f.deleted.files = in.int()
		f.added.rows = in.long()
		existing += in.int()
		f.deleted.rows = in.long()
		if in.err == nil && (place != dir+"/"+f.name || existing != 0) {
			return nil, fmt.Errorf("%w: it lists %s, with %d files and rows from before", ErrForeign, place, existing)
		}
		list = append(list, f)
	}
	return list, in.err
}
