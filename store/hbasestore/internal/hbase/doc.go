// Package hbase is the client code of HBase's Thrift2 gateway, as the Thrift
// compiler 0.17.0 makes it from hbase.thrift, the gateway's IDL of the HBase
// 2.6.1 sources. It is written by "go generate" here and by nobody else; the
// program of another version writes other code.
//
// Structs that have defaults are to be made with their New functions: a zero
// TScan asks for no versions and returns nothing. A client does one call at a
// time.
package hbase

//go:generate thrift --gen go:skip_remote -out .. hbase.thrift
//go:generate go tool -modfile=../../../../tools.mod gofumpt -w .
