package server

import "strings"

var keyEscapes = strings.NewReplacer(`\`, `\\`, "\x00", `\0`)

// JoinKey joins texts to a key. Keys of different texts are different.
func JoinKey(parts ...string) string {
	var b strings.Builder
	for _, part := range parts {
		b.WriteString(keyEscapes.Replace(part))
		b.WriteByte(0)
	}
	return b.String()
}
