package config

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
)

// Fingerprint identifies the present result of [Server.Expand]: entries with different commands,
// environments, URLs or headers have different fingerprints. It is a hash with a key, so that it
// does not reveal secrets. It reads variables and files as Expand does, but runs no command: the
// text of a command replaces its output, which may differ each time. A failure to expand changes
// the fingerprint too.
func (s *Server) Fingerprint(key []byte, lookup func(name string) (string, bool)) [sha256.Size]byte {
	e := &expansion{ctx: context.Background(), server: s, lookup: lookup, static: true}
	out, err := e.expand()
	hash := hmac.New(sha256.New, key)
	if err != nil {
		out = s
		fmt.Fprintf(hash, "%q ", err.Error())
	}
	fmt.Fprintf(hash, "%q", []any{out.Name, string(out.Type), out.Command, out.Args, out.Env, out.Dir, out.URL,
		out.Header, out.HeaderCommand})
	return [sha256.Size]byte(hash.Sum(nil))
}
