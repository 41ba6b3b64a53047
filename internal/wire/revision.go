// Package wire describes the differences between the revisions of the Model Context Protocol, as
// data.
//
// A [Revision] is a dated version of the protocol. A [Feature] is a named difference;
// [Revision.Has] reports whether a revision defines it. A [Method] is a request or notification;
// [Revision.Method] returns it. An [Envelope] is the metadata of a request, from its `_meta`.
//
// Each revision is a file, v2024_11_05.go to v2026_07_28.go, which lists the features that it adds
// to and removes from the previous revision, like the revision's changelog. A method, error code or
// `_meta` key that a revision lacks is not in its tables.
//
// All tables stay unchanged after initialization, so they are safe for concurrent use.
package wire

import (
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

//go:generate go test -run ^TestSupportDocumentIsCurrent$ . -update

// A Revision is a version of the protocol. Later revisions compare greater. The zero Revision has
// no version and no features.
type Revision uint8

// The revisions, oldest first. The first four are the legacy era, which opens a session with
// initialize. From July2026 on, every request is independent.
const (
	November2024 Revision = iota + 1
	March2025
	June2025
	November2025
	July2026
)

// The versions of the revisions, as sent.
const (
	VersionNovember2024 = "2024-11-05"
	VersionMarch2025    = "2025-03-26"
	VersionJune2025     = "2025-06-18"
	VersionNovember2025 = "2025-11-25"
	VersionJuly2026     = "2026-07-28"
)

// A delta contains the changes of a revision to the previous revision. A method that exists already
// is replaced.
type delta struct {
	version string // as sent: a date

	adds, removes []Feature
	deprecates    []Feature

	methods        []Method
	removesMethods []string

	codes        []int
	removesCodes []int

	meta        []string
	removesMeta []string
}

// deltas are the deltas of all revisions, oldest first.
var deltas = [...]*delta{&november2024, &march2025, &june2025, &november2025, &july2026}

// A table is the sum of the deltas up to a revision.
type table struct {
	version    string
	features   featureSet
	deprecated featureSet
}

// tables is indexed by Revision.
var tables = buildTables()

func buildTables() (all [July2026 + 1]table) {
	for i, d := range deltas {
		before := &all[i]
		all[i+1] = table{
			version:    d.version,
			features:   before.features.with(d.adds).without(d.removes),
			deprecated: before.deprecated.with(d.deprecates).without(d.removes),
		}
	}
	return all
}

// A vocabulary holds the names and codes that a revision defines.
type vocabulary struct {
	methods map[string]Method
	codes   []int
	meta    []string
}

// vocabularies is indexed by Revision. It is built on first use, so that it does not delay the
// start of a program.
var vocabularies = sync.OnceValue(buildVocabularies)

func buildVocabularies() *[July2026 + 1]vocabulary {
	var all [July2026 + 1]vocabulary
	for i, d := range deltas {
		before := &all[i]
		now := &all[i+1]
		*now = vocabulary{
			methods: make(map[string]Method, len(before.methods)+len(d.methods)),
			codes:   append(without(before.codes, d.removesCodes), d.codes...),
			meta:    append(without(before.meta, d.removesMeta), d.meta...),
		}
		for name, m := range before.methods {
			if !slices.Contains(d.removesMethods, name) {
				now.methods[name] = m
			}
		}
		for _, m := range d.methods {
			now.methods[m.Name] = m
		}
	}
	return &all
}

// without returns a copy of list that lacks the elements of removed.
func without[T comparable](list, removed []T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(e T) bool { return slices.Contains(removed, e) })
}

// Revisions returns all known revisions, oldest first. The caller may change the slice.
func Revisions() []Revision {
	return []Revision{November2024, March2025, June2025, November2025, July2026}
}

// Latest returns the newest revision.
func Latest() Revision { return July2026 }

// LatestLegacy returns the newest revision that opens a session with initialize. Clients request it
// there.
func LatestLegacy() Revision { return November2025 }

// ParseRevision returns the revision of a version string, and whether it is known. Version strings
// are opaque and must match exactly.
//
// Spec: basic/versioning#protocol-version-negotiation
func ParseRevision(version string) (Revision, bool) {
	for r := Latest(); r != 0; r-- { // newest first: the common case
		if tables[r].version == version {
			return r, true
		}
	}
	return 0, false
}

func (r Revision) known() bool { return int(r) < len(tables) }

// String returns the version string, a date, or "" for the zero Revision.
func (r Revision) String() string {
	if !r.known() {
		return ""
	}
	return tables[r].version
}

// Modern reports whether requests of this revision carry their own envelope instead of belonging to
// a session.
func (r Revision) Modern() bool { return r.Has(RequestEnvelope) }

// Deprecated reports whether the revision contains the feature and deprecates it.
func (r Revision) Deprecated(f Feature) bool { return r.known() && tables[r].deprecated.has(f) }

// Has reports whether the revision contains the feature, deprecated or not.
func (r Revision) Has(f Feature) bool { return r.known() && tables[r].features.has(f) }

// Method returns the method as the revision defines it, and whether the revision defines it. The
// response to an unknown method is an error with [CodeMethodNotFound].
func (r Revision) Method(name string) (Method, bool) {
	if !r.known() {
		return Method{}, false
	}
	m, ok := vocabularies()[r].methods[name]
	return m, ok
}

// InAnyRevision reports whether a revision defines the method.
func InAnyRevision(name string) bool {
	return slices.ContainsFunc(Revisions(), func(r Revision) bool { _, ok := r.Method(name); return ok })
}

// HasCode reports whether the revision defines the error code. All revisions use the codes of
// JSON-RPC.
func (r Revision) HasCode(code int) bool {
	switch code {
	case jsonrpc.CodeParseError, jsonrpc.CodeInvalidRequest, CodeMethodNotFound,
		CodeInvalidParams, CodeInternalError:
		return true
	}
	return r.known() && slices.Contains(vocabularies()[r].codes, code)
}
