package rowkey_test

import (
	"fmt"

	"sluice/rowkey"
)

func ExampleEncoder() {
	var e rowkey.Encoder
	key, err := e.Text("user-1", 8).ReverseTime(1431857103123).Uint16(3).Key()
	fmt.Printf("%q %v\n", key, err)

	d := rowkey.NewDecoder(key)
	user, at, partition := d.Text(8), d.ReverseTime(), d.Uint16()
	fmt.Println(user, at, partition, d.End())
	// Output:
	// "user-1\x00\x00\x7f\xff\xfe\xb2\x9e\xaa~\xec\x00\x03" <nil>
	// user-1 1431857103123 3 <nil>
}

func ExampleAppendHash16() {
	key := append(rowkey.AppendHash16(nil, []byte("user-1")), "user-1"...)
	fmt.Printf("%q\n", key)
	// Output: "\xa1suser-1"
}

func ExampleAppendReversed() {
	fmt.Printf("%s\n", rowkey.AppendReversed(nil, []byte("0000001234")))
	// Output: 4321000000
}

func ExampleTransactionKey() {
	t := rowkey.NewTransactionKey([]byte("DE89-1"), 1431857103123)
	key, err := t.Append(nil)
	fmt.Printf("%x %v\n", key, err)

	s, err := rowkey.ParseStatisticsKey([]byte{0, 0, 0, 7, 2, 0x5d})
	fmt.Println(s.Sequence, s.Minute, err)

	tables, err := rowkey.DayTables{Prefix: "transactions_"}.Between(1431857103123, 1431957103123)
	fmt.Println(tables, err)
	// Output:
	// 4ab50229f113 <nil>
	// 7 605 <nil>
	// [transactions_20150517 transactions_20150518] <nil>
}
