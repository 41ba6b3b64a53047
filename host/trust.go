package host

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// A TrustStore records which servers of project files the user has trusted; see [Config.Project].
// Each is a file in a directory that only the user may write to. It is safe for concurrent use, also
// by several processes.
type TrustStore struct {
	// Dir is the directory. [TrustStore.Trust] creates it with mode 0700.
	Dir string
}

// NeedsTrust reports whether the user must trust a server before a program starts it, connects to it
// or expands its variables: it comes from a project file and was not trusted as it is now. A store
// that cannot be read trusts nothing.
func (t *TrustStore) NeedsTrust(s *Server) bool {
	if !s.Project {
		return false
	}
	_, err := os.Stat(t.file(s))
	return err != nil
}

// Trust records that the user has trusted a server as it is now.
func (t *TrustStore) Trust(s *Server) error {
	if err := os.MkdirAll(t.Dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(t.file(s), append(s.identity(), '\n'), 0o600)
}

// Revoke removes the record of a server. It is not an error if there is none.
func (t *TrustStore) Revoke(s *Server) error {
	if err := os.Remove(t.file(s)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (t *TrustStore) file(s *Server) string {
	sum := sha256.Sum256(s.identity())
	return filepath.Join(t.Dir, hex.EncodeToString(sum[:])+".json")
}

// identity returns all that decides what using a server does, with variables unexpanded, and the
// directory of its file: relative paths of the entry depend on it.
func (s *Server) identity() []byte {
	base, err := filepath.Abs(s.base)
	if err != nil {
		base = s.base
	}
	text, _ := json.Marshal(struct { // strings only: no error is possible
		Base, Name, Type, Command string
		Args                      []string
		Env                       map[string]string
		Dir, URL                  string
		Header                    map[string]string
	}{base, s.Name, string(s.Type), s.Command, s.Args, s.Env, s.Dir, s.URL, s.Header})
	return text
}
