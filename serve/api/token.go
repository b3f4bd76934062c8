package api

import (
	"crypto/sha256"
	"crypto/subtle"
)

// SameToken reports whether two bearer tokens are the same. It takes the same time whatever
// is wrong, length included, as digests are compared.
func SameToken(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}
