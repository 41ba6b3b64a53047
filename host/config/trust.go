package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"unicode/utf8"
)

// A TrustStore records which servers of project files the user has trusted; see [File.Project].
// Each record is a file that only the user may access, with the entry as it was trusted. The store
// is safe for concurrent use, also by several processes.
//
// Trust is for the entry and its directory. It does not cover the files that a command runs: a
// repository that changes them keeps its trust.
type TrustStore struct {
	// Dir is the absolute path of the directory. [TrustStore.Trust] creates it with mode 0700. If
	// other users can access the directory or a record, the user must trust the server again.
	Dir string
}

// NeedsTrust reports whether the user must trust a server before a program starts it, connects to
// it or expands its variables: the server comes from a project file, and its present entry was not
// trusted. If the store cannot be read, no server is trusted.
func (t *TrustStore) NeedsTrust(s *Server) bool {
	if !s.Project {
		return false
	}
	file, want, err := t.record(s)
	if err != nil {
		return true
	}
	got, err := readRecord(file, len(want))
	return err != nil || !bytes.Equal(got, want)
}

// Trust records that the user has trusted the present entry of a server. It replaces the record of
// another entry with the same name in the same file. It returns an error if Dir is not absolute, if
// other users can access Dir, if the entry is not valid UTF-8, or if the record cannot be written.
func (t *TrustStore) Trust(s *Server) error {
	file, record, err := t.record(s)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(t.Dir, 0o700); err != nil {
		return err
	}
	if err := checkPrivate(t.Dir); err != nil {
		return err
	}
	temp, err := os.CreateTemp(t.Dir, "new-*") // with mode 0600; the rename does not follow a link
	if err != nil {
		return err
	}
	_, err = temp.Write(record)
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), file)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
	}
	return err
}

// Revoke removes the record of a server, also that of an earlier entry of the same name. A missing
// record is not an error.
func (t *TrustStore) Revoke(s *Server) error {
	file, _, err := t.record(s)
	if err != nil {
		return err
	}
	if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// record returns the file of a server's record, which is the same for all entries of the name in
// the configuration file, and its content.
func (t *TrustStore) record(s *Server) (file string, content []byte, err error) {
	if !filepath.IsAbs(t.Dir) {
		return "", nil, fmt.Errorf("invalid directory %q of trusted servers: must be absolute", t.Dir)
	}
	e, err := s.trusted()
	if err != nil {
		return "", nil, err
	}
	key, _ := json.Marshal([]string{e.Base, e.File, e.Name}) // strings only: no error is possible
	sum := sha256.Sum256(key)
	content, _ = json.Marshal(e)
	return filepath.Join(t.Dir, hex.EncodeToString(sum[:])+".json"), append(content, '\n'), nil
}

// A trustedEntry contains everything that determines the effect of using a server, with variables
// unexpanded. Relative paths of the entry depend on Base, the directory of its file or of its
// project. File is relative to Base.
type trustedEntry struct {
	Base, File, Name, Type, Command string
	Args                            []string
	Env                             map[string]string
	EnvFile, Dir, URL               string
	Header                          map[string]string
	Inputs                          []Input
	// Empty members are absent, so that records of releases without these members remain valid.
	HeaderCommand string   `json:",omitempty"`
	AllowedTools  []string `json:",omitempty"`
	ExcludedTools []string `json:",omitempty"`
	Settings      string   `json:",omitempty"`
}

func (s *Server) trusted() (*trustedEntry, error) {
	base, err := filepath.Abs(s.base)
	if err != nil {
		return nil, err
	}
	file := s.path
	if file != "" {
		if file, err = filepath.Abs(file); err == nil {
			file, err = filepath.Rel(base, file)
		}
	}
	if err == nil {
		base, err = filepath.EvalSymlinks(base) // a link may lead elsewhere later
	}
	if err != nil {
		return nil, err
	}
	e := &trustedEntry{base, file, s.Name, string(s.Type), s.Command, s.Args, s.Env, s.EnvFile, s.Dir, s.URL,
		s.Header, s.Inputs, s.HeaderCommand, s.AllowedTools, s.ExcludedTools, string(s.Settings)}
	texts := append([]string{e.Base, e.File, e.Name, e.Type, e.HeaderCommand, e.Settings}, s.texts()...)
	texts = slices.Concat(texts, e.AllowedTools, e.ExcludedTools)
	texts = slices.AppendSeq(slices.AppendSeq(texts, maps.Keys(e.Env)), maps.Keys(e.Header))
	for _, in := range e.Inputs {
		texts = append(append(texts, in.ID, in.Description, in.Default), in.Options...)
	}
	for _, text := range texts {
		if !utf8.ValidString(text) { // JSON would record it like another text
			return nil, fmt.Errorf("invalid text %.64q of server %.64q: must be UTF-8", text, s.Name)
		}
	}
	return e, nil
}

// readRecord reads a record of a size that only the user may access, in such a directory.
func readRecord(file string, size int) ([]byte, error) {
	if err := checkPrivate(filepath.Dir(file)); err != nil {
		return nil, err
	}
	info, err := os.Lstat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() != int64(size) {
		return nil, fmt.Errorf("%s: not a record of this server", file)
	}
	if err := checkOwner(file, info); err != nil {
		return nil, err
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, int64(size)+1))
}

// checkPrivate returns an error for a directory that other users own or can access.
func checkPrivate(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s: not a directory", dir)
	}
	return checkOwner(dir, info)
}
