package config

import (
	"encoding/json"
	"maps"
)

// An Entry is a server of a file, for [Merge].
type Entry struct {
	// Name is the name of the server in the merged file.
	Name string
	// File contains the server under the name Server.
	File   *File
	Server string
	// Local reserves the server for the local user, such as a server that the configuration of
	// another application contains. Callers with a principal cannot use it.
	Local bool
}

// Merge returns a file with servers of several files, in their order. Each server keeps the
// properties that its own file determines: whether the file is a project file, the directory of its
// paths, and its inputs. Path, Dir, Extra and the settings come from the file settings, which may
// be nil. An entry is left out if its file does not contain the server or an earlier entry uses the
// name.
func Merge(settings *File, entries []Entry) *File {
	merged := &File{Extra: map[string]json.RawMessage{}}
	if settings != nil {
		*merged = *settings
		merged.Extra = maps.Clone(settings.Extra)
	}
	merged.names, merged.servers, merged.sources = nil, map[string]json.RawMessage{}, map[string]Entry{}
	for _, e := range entries {
		if !e.File.Has(e.Server) || merged.Has(e.Name) {
			continue
		}
		merged.names = append(merged.names, e.Name)
		merged.servers[e.Name], merged.sources[e.Name] = e.File.servers[e.Server], e
	}
	merged.ids = serverIDs(merged.names)
	return merged
}

// IsLocal reports whether [Entry.Local] was set for the server with this name. It is false for a
// file that [Merge] did not make.
func (f *File) IsLocal(name string) bool { return f.sources[name].Local }

// server returns the server of an entry under its name in the merged file.
func (e *Entry) server() (*Server, error) {
	s, err := e.File.Server(e.Server)
	if err != nil {
		return nil, err
	}
	s.Name = e.Name
	return s, nil
}
