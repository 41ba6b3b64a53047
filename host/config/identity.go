package config

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
)

// Identity returns a digest of the program that serves: the command, its arguments and its
// directory, or the URL. Variables are unexpanded, so that the digest contains no secrets, and it
// contains neither the environment nor headers, so that a new token does not change it. Entries
// with the same identity are the same program, whatever their names, but may use different
// accounts.
func (s *Server) Identity() string {
	dir := s.Dir
	if s.Type == TypeStdio && (dir == "" && s.Project || dir != "" && !filepath.IsAbs(dir)) {
		dir = filepath.Join(s.base, dir)
	}
	what := []any{"url", s.URL}
	if s.Type == TypeStdio {
		what = []any{"command", s.Command, s.Args, dir}
	}
	text, _ := json.Marshal(what) // strings only: no error is possible
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
