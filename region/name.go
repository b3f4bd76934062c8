package region

import (
	"crypto/md5"
	"encoding/hex"
	"strconv"
)

// Name returns the region's name as HBase writes it: table, start key and id
// separated by commas, then "." and EncodedName and ".". The start key is in it
// byte for byte.
func (i *Info) Name() string {
	return string(append(i.appendIdentity(nil), "."+i.EncodedName()+"."...))
}

// EncodedName returns the 32 hex digits that identify the region: the MD5 sum of
// "table,start,id" (HBase RegionInfo.encodeRegionName). It is a name, not a
// protection.
func (i *Info) EncodedName() string {
	sum := md5.Sum(i.appendIdentity(nil))
	return hex.EncodeToString(sum[:])
}

func (i *Info) appendIdentity(dst []byte) []byte {
	dst = append(dst, i.Table...)
	dst = append(dst, ',')
	dst = append(dst, i.Start...)
	dst = append(dst, ',')
	return strconv.AppendInt(dst, i.ID, 10)
}
