package config

import (
	"encoding/json"
	"maps"
)

// An Entry is a server of a file, for [Merge].
type Entry struct {
	// Name is the name of the server in the merged file.
	Name string
	// File has the server, and Server is its name there.
	File   *File
	Server string
	// Local reserves the server for the local user, such as a server that the configuration of
	// another application contains. Callers with a principal cannot use it.
	Local bool
}

// Merge returns a file with servers of several files, in their order. Each server keeps what its own
// file determines: whether it is that of a project, the directory of its paths, and its inputs. Path,
// Dir, Extra and the settings are those of another file, which may be nil. An entry is left out if
// its file does not have the server or an earlier entry has the name.
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

// server returns the server of an entry, with the name that it has in the merged file.
func (e *Entry) server() (*Server, error) {
	s, err := e.File.Server(e.Server)
	if err != nil {
		return nil, err
	}
	s.Name = e.Name
	return s, nil
}
