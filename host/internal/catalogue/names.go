package catalogue

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"strconv"
	"strings"
)

// Lengths of public names in bytes. Public names are ASCII.
const (
	// DefaultMaxName leaves room for the prefixes of clients, such as mcp__patchbay__, within the 64
	// characters that model APIs allow.
	DefaultMaxName = 48
	// MinMaxName is the least maximum that Merge uses: a server's id, a tool and a digest fit.
	MinMaxName = 36
	// MaxMaxName is the greatest maximum that Merge uses, that of model APIs and the specification.
	MaxMaxName = 128
	// MaxServerID is the maximum length of a server's id.
	MaxServerID = 24
)

// A step is a form of a public name. If another item has claimed a name in the same or a later
// step, the item must not use the name, and goes on to its next step.
type step uint8

const (
	stepPlain    step = iota // the original or configured name
	stepPrefixed             // server__name
	stepDigest6              // a changed or shortened name, with a part of the digest
	stepDigest10
	stepDigest26 // 130 bits: equal only if SHA-256 is broken
	stepEnd
)

// digestLen is the number of base-32 characters of a step.
var digestLen = [stepEnd]int{stepDigest6: 6, stepDigest10: 10, stepDigest26: 26}

// plainNames holds the names of an entry that need no digest, and the values they were made from.
type plainNames struct {
	id, wanted string
	max        int
	plain      string // "" if it is not a valid public name
	prefixed   string // likewise
}

// plainNames returns the names for a server's ID and a wanted name: the original or configured
// name.
func (e *entry) plainNames(id, wanted string, limit int) *plainNames {
	if n := e.names.Load(); n != nil && n.id == id && n.wanted == wanted && n.max == limit {
		return n
	}
	n := &plainNames{id: id, wanted: wanted, max: limit}
	if isPublicName(wanted) {
		if len(wanted) <= limit {
			n.plain = wanted
		}
		if len(id)+len(separator)+len(wanted) <= limit {
			n.prefixed = id + separator + wanted
		}
	}
	e.names.Store(n)
	return n
}

// separator is between the ID of a server, which contains no underscore, and the name.
const separator = "__"

// isPublicName reports whether every model API accepts the name, if it is not too long.
func isPublicName(name string) bool {
	for i := range len(name) {
		if !isPublicChar(name[i]) {
			return false
		}
	}
	return name != ""
}

func isPublicChar(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

// cleanName replaces every character that public names must not contain with an underscore.
func cleanName(name string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 && isPublicChar(byte(r)) {
			return r
		}
		return '_'
	}, name)
}

var lowerBase32 = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// withDigest returns base, shortened, with n characters of the digest of a server's name and an
// original name, at most limit bytes together.
func withDigest(base, server, original string, n, limit int) string {
	sum := sha256.Sum256([]byte(strconv.Itoa(len(server)) + ":" + server + original))
	base = base[:min(len(base), limit-1-n)]
	return base + "_" + lowerBase32.EncodeToString(sum[:])[:n]
}

// A candidate is an item that needs a public name.
type candidate struct {
	server *member
	entry  *entry
	wanted string // the original or configured name
	name   string // in the current step
	step   step
}

// A naming assigns public names to the items of a kind.
//
// An item goes through the steps of its names, in order, until it claims a name that no other item
// has claimed in the same or a later step. Claims are kept when an item goes on. So the names do
// not depend on the order in which items are processed, and a server cannot take the name of
// another server's item by listing an item with the name.
type naming struct {
	mode   NameMode
	max    int
	items  []candidate // by server
	claims map[string]claim

	reserved bool // the caller has claimed names that may start with an ID
}

// A claim holds the latest step in which a name was claimed, and the item that owns the name.
type claim struct {
	step step
	item int // index; -1 if the name is not used
}

// reserve claims names for the caller.
func (n *naming) reserve(names []string) {
	for _, name := range names {
		n.claims[name] = claim{stepEnd, -1}
		n.reserved = n.reserved || strings.Contains(name, separator)
	}
}

// assign names all items. If an item ends without a name, its step is stepEnd.
func (n *naming) assign() {
	var pending []int
	for from := 0; from < len(n.items); {
		begin, to := from, n.nextServer(from)
		if from = to; n.assignPrefixed(n.items[begin:to]) {
			continue
		}
		for i := begin; i < to; i++ {
			n.items[i].step = stepPlain
			for pending = append(pending[:0], i); len(pending) > 0; {
				last := len(pending) - 1
				pending = n.place(pending[last], pending[:last])
			}
		}
	}
}

// nextServer returns the index of the first item of the next server.
func (n *naming) nextServer(i int) int {
	s := n.items[i].server
	for i < len(n.items) && n.items[i].server == s {
		i++
	}
	return i
}

// assignPrefixed assigns prefixed names to all items of a server and reports true, if all original
// names allow it. Such names need no claims: the prefix separates them from the names of other
// servers.
func (n *naming) assignPrefixed(items []candidate) bool {
	if n.mode != Prefixed || n.reserved {
		return false
	}
	for i := range items {
		c := &items[i]
		c.step, c.name = stepPrefixed, n.nameAt(c, stepPrefixed)
		if c.name == "" || c.wanted != c.entry.original {
			return false
		}
	}
	return true
}

// place claims the next name for an item. Items that need another name are appended to pending.
func (n *naming) place(i int, pending []int) []int {
	c := &n.items[i]
	for ; c.step < stepEnd; c.step++ {
		if c.name = n.nameAt(c, c.step); c.name != "" {
			break
		}
	}
	if c.step == stepEnd {
		return pending
	}
	old, taken := n.claims[c.name]
	switch {
	case !taken:
		n.claims[c.name] = claim{c.step, i}
		return pending
	case n.mode == Unprefixed && c.step == stepPlain && old.step == stepPlain:
		n.claims[c.name] = claim{stepPlain, -1}
		c.step = stepEnd
		if old.item >= 0 {
			n.items[old.item].step = stepEnd
		}
		return pending
	case n.mode == Unprefixed, c.step < old.step:
		c.step = n.after(c.step)
		return append(pending, i)
	}
	n.claims[c.name] = claim{c.step, i}
	if c.step == old.step {
		n.claims[c.name] = claim{c.step, -1}
		c.step++
		pending = append(pending, i)
	}
	if old.item >= 0 {
		n.items[old.item].step++
		pending = append(pending, old.item)
	}
	return pending
}

// after returns the step that follows a claim of a name that is taken.
func (n *naming) after(s step) step {
	if n.mode == Unprefixed && s == stepPlain {
		return stepEnd
	}
	return s + 1
}

// nameAt returns the name of an item in a step, or "".
func (n *naming) nameAt(c *candidate, s step) string {
	names := c.entry.plainNames(c.server.ID, c.wanted, n.max)
	switch s {
	case stepPlain:
		if n.mode == Prefixed {
			return ""
		}
		return names.plain
	case stepPrefixed:
		if n.mode == Unprefixed || n.mode == PrefixedConflicts && names.plain == "" {
			return ""
		}
		return names.prefixed
	}
	base := cleanName(c.wanted)
	if n.mode == Prefixed || n.mode == PrefixedConflicts && names.plain != "" {
		base = c.server.ID + separator + base
	}
	return withDigest(base, c.server.Name, c.entry.original, digestLen[s], n.max)
}

// IDs returns the IDs of servers in public names, in the order of their configured names: at most
// [MaxServerID] lower-case letters, digits and hyphens, all different. If an ID would be too long
// or equal to another ID, it ends in a part of the digest of the configured name.
func IDs(names []string) []string {
	ids := make([]string, len(names))
	used := map[string]bool{}
	for i, name := range names { // names that are ids stay
		if isServerID(name) && !used[name] {
			ids[i], used[name] = name, true
		}
	}
	for i, name := range names {
		if ids[i] != "" {
			continue
		}
		base := strings.Trim(strings.ReplaceAll(strings.ToLower(cleanName(name)), "_", "-"), "-")
		base = cmp.Or(base, "server")
		id := base
		for n := 6; !isServerID(id) || used[id]; n++ {
			sum := sha256.Sum256([]byte(name))
			suffix := lowerBase32.EncodeToString(sum[:])
			id = base[:min(len(base), max(MaxServerID-1-n, 0))] + "-" + suffix[:min(n, MaxServerID-1)]
			if n > MaxServerID { // the same name twice
				id = "server-" + strconv.Itoa(i) + "-" + strconv.Itoa(n)
			}
		}
		ids[i], used[id] = id, true
	}
	return ids
}

func isServerID(id string) bool {
	for i := range len(id) {
		if c := id[i]; !isPublicChar(c) || c == '_' || 'A' <= c && c <= 'Z' {
			return false
		}
	}
	return id != "" && len(id) <= MaxServerID
}

// assignWanted assigns all items the names that they want, for a single server. Of two equal names
// the first is used.
func (n *naming) assignWanted() {
	for i := range n.items {
		c := &n.items[i]
		c.name = c.wanted
		if _, taken := n.claims[c.name]; taken {
			c.step = stepEnd
			continue
		}
		n.claims[c.name] = claim{stepPlain, i}
	}
}
