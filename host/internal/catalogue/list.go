package catalogue

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/uritemplate"
	"github.com/patchbay-mcp/patchbay/visible"
)

// Limits of a list of a server.
const (
	// MaxItems is the maximum number of items: more than any host shows, or any model reads.
	MaxItems = 10_000
	// MaxBytes is the maximum size of all pages in bytes, the same as that of a client's lists.
	MaxBytes = 64 << 20
	// MaxTemplates is the maximum number of resource templates. A URI is compared with each.
	MaxTemplates = 1000
	// MaxItemBytes limits a definition in bytes. Models cannot read larger definitions.
	MaxItemBytes = 1 << 20
	// MaxNameBytes limits an original name in bytes. Real names are at most 128 bytes long.
	MaxNameBytes = 1024
	// maxListProblems limits the problems that a list keeps: a hostile list consists of them.
	maxListProblems = 100
)

// Parse reads the pages of a list: results of the kind's method, in order. It never fails: an
// invalid, duplicate or excess item alone is left out, and described by a [Problem]. The list
// aliases the pages, which must not be changed.
func Parse(kind Kind, pages ...json.RawMessage) *List {
	p := parser{List: &List{kind: kind}, seen: map[string]bool{}}
	for i, page := range pages {
		if p.bytes += len(page); p.bytes > MaxBytes {
			p.add(LeftOut, "", fmt.Sprintf("all from page %d on: the list is longer than %d bytes", i+1, MaxBytes))
			break
		}
		if !p.page(i, page) {
			break
		}
	}
	return p.finish()
}

// A parser reads pages into a list.
type parser struct {
	*List
	seen map[string]bool // original names
	more int             // problems beyond maxListProblems

	scratch jsontext.Value // see digestOf
}

func (p *parser) add(s Severity, name, reason string) {
	if len(p.problems) == maxListProblems {
		p.more++
		return
	}
	p.problems = append(p.problems, Problem{s, "", p.kind, cut(name, uritemplate.MaxLength), reason})
}

// page reads a page, and reports whether the list may hold more items.
func (p *parser) page(number int, page []byte) bool {
	err := jsonscan.Valid(page, jsonscan.Limits{})
	var syntax *jsonscan.SyntaxError
	if errors.As(err, &syntax) && !syntax.WellFormed() {
		p.add(LeftOut, "", fmt.Sprintf("page %d: %v", number+1, err))
		return true
	}
	items, ok := jsonscan.Get(page, p.kind.Member())
	if !ok || jsonscan.Kind(items) != '[' {
		p.add(LeftOut, "", fmt.Sprintf("page %d has no array %q", number+1, p.kind.Member()))
		return true
	}
	limit := MaxItems
	if p.kind == Templates {
		limit = MaxTemplates
	}
	for item := range jsonscan.Elements(items) {
		if len(p.entries) == limit {
			p.add(LeftOut, "", fmt.Sprintf("all items after the first %d: a list has at most so many", limit))
			return false
		}
		if err != nil { // an item, or a member beside the items, breaks a rule of jsonscan
			if err := jsonscan.Valid(item, jsonscan.Limits{}); err != nil {
				p.add(LeftOut, nameOf(p.kind, item), err.Error())
				continue
			}
		}
		p.item(item)
	}
	return true
}

// item adds a valid JSON value, if it represents a valid item.
func (p *parser) item(raw []byte) {
	name, err := check(p.kind, raw)
	switch {
	case err != nil:
		p.add(LeftOut, name, err.Error())
		return
	case p.seen[name]:
		p.add(Flagged, name, "listed more than once: the first definition is used")
		return
	}
	p.seen[name] = true
	if strings.ContainsFunc(name, visible.Hidden) {
		p.add(Flagged, name, "the name has control, invisible or bidirectional characters")
	}
	e := &entry{kind: p.kind, original: name, raw: raw, digest: digestOf(raw, &p.scratch)}
	if p.kind == Tools {
		e.view = viewOf(raw)
	}
	p.entries = append(p.entries, e)
}

func (p *parser) finish() *List {
	slices.SortFunc(p.entries, func(a, b *entry) int { return cmp.Compare(a.original, b.original) })
	h := sha256.New()
	for _, e := range p.entries {
		h.Write(e.digest[:])
	}
	h.Sum(p.digest[:0])
	if p.more > 0 {
		p.problems = append(p.problems, Problem{LeftOut, "", p.kind, "", fmt.Sprintf("%d more problems", p.more)})
	}
	return p.List
}

// nameOf returns the name or URI of an item that may be invalid, or "".
func nameOf(kind Kind, item []byte) string { return jsonscan.GetString(item, kinds[kind].id) }

// digestOf returns the SHA-256 digest of a valid value in canonical form: RFC 8785, except that
// numbers keep their text, because two numbers may round to the same float64. It overwrites scratch.
func digestOf(raw json.RawMessage, scratch *jsontext.Value) [sha256.Size]byte {
	*scratch = append((*scratch)[:0], raw...)
	if scratch.Canonicalize(jsontext.CanonicalizeRawInts(false), jsontext.CanonicalizeRawFloats(false)) != nil {
		return sha256.Sum256(raw)
	}
	return sha256.Sum256(*scratch)
}

// find returns the position of an item.
func (l *List) find(original string) (i int, ok bool) {
	if l == nil {
		return 0, false
	}
	return slices.BinarySearchFunc(l.entries, original, func(e *entry, name string) int {
		return cmp.Compare(e.original, name)
	})
}

// Len returns the number of items.
func (l *List) Len() int {
	if l == nil {
		return 0
	}
	return len(l.entries)
}

// Bytes returns the size of the pages of the list.
func (l *List) Bytes() int { return l.bytes }

// Problems returns the problems of the list: items that are left out, and items that a user should
// look at. It returns at most about 100.
func (l *List) Problems() []Problem {
	if l == nil {
		return nil
	}
	return l.problems
}

// Equal reports whether two lists contain the same items in any order.
func (l *List) Equal(other *List) bool {
	return l.Len() == other.Len() && (l.Len() == 0 || l.digest == other.digest)
}
