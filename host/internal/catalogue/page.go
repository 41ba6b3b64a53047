package catalogue

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"sort"
	"strconv"
	"strings"
)

// Limits of pages.
const (
	// PageSize is the default number of items of a page.
	PageSize = 500
	// maxPageBytes ends a page early, so that it stays within the message size of clients.
	maxPageBytes = 4 << 20
)

// ErrCursor reports that a position is not one that [Catalogue.Page] has returned.
var ErrCursor = errors.New("the cursor is not one of this list")

// Page returns the items that follow a position, as a JSON array, and the position of the next
// page, which is "" for the last page. The first page follows "". A limit of 0 means [PageSize]; a
// page of very large definitions contains fewer items.
//
// The order is the order of the configuration, then of the original names. A position names the
// last item of a page, so it stays valid when the catalogue changes: only added or removed items
// are repeated or skipped. The caller must seal the position, because a client sends it back.
func (c *Catalogue) Page(k Kind, after string, limit int) (items json.RawMessage, next string, err error) {
	list := c.kinds[k].items
	start := 0
	if after != "" {
		if start, err = c.indexAfter(k, after); err != nil {
			return nil, "", err
		}
	}
	if limit <= 0 {
		limit = PageSize
	}
	items, end := newPage(list, start, limit)
	if end < len(list) {
		next = c.positionOf(list[end-1])
	}
	return items, next, nil
}

// positionOf returns the position behind an item: the number and the ID of its server, the digest
// and the name of the item. It cuts a long name, because clients limit the length of cursors.
func (c *Catalogue) positionOf(item *Item) string {
	number := c.byName[item.Server].position
	return strconv.Itoa(number) + " " + item.ID + " " + nameDigest(item.Original) + cut(item.Original, maxCursorName)
}

// maxCursorName limits the part of a name that a position contains, in bytes.
const maxCursorName = 512

// nameDigestLen is the length of a digest in a position. It tells names apart that were cut.
const nameDigestLen = 16

func nameDigest(name string) string {
	sum := sha256.Sum256([]byte(name))
	return lowerBase32.EncodeToString(sum[:])[:nameDigestLen]
}

// newPage builds the page that starts at an index. It returns the index behind the last item too.
func newPage(items []*Item, from, limit int) (array json.RawMessage, to int) {
	to, size := from, len("[]")
	for to < len(items) && to-from < limit && (to == from || size+items[to].Size() <= maxPageBytes) {
		size += items[to].Size() + len(",")
		to++
	}
	array = append(make([]byte, 0, size), '[')
	for i, item := range items[from:to] {
		if i > 0 {
			array = append(array, ',')
		}
		array = item.AppendDefinition(array)
	}
	return append(array, ']'), to
}

// indexAfter returns the index of the first item behind a position. If the position's server was
// removed, that is the first item of the servers that followed it.
func (c *Catalogue) indexAfter(k Kind, after string) (int, error) {
	number, rest, _ := strings.Cut(after, " ")
	id, rest, found := strings.Cut(rest, " ")
	position, err := strconv.Atoi(number)
	if err != nil || !found || len(rest) < nameDigestLen {
		return 0, ErrCursor
	}
	digest, name := rest[:nameDigestLen], rest[nameDigestLen:]
	items := c.kinds[k].items
	positionAt := func(i int) int { return c.byName[items[i].Server].position }
	s := c.routes.byID[id]
	if s == nil {
		return sort.Search(len(items), func(i int) bool { return positionAt(i) >= position }), nil
	}
	first := sort.Search(len(items), func(i int) bool {
		return cmp.Or(cmp.Compare(positionAt(i), s.position), cmp.Compare(items[i].Original, name)) >= 0
	})
	for i := first; i < len(items) && items[i].ID == id && cut(items[i].Original, maxCursorName) == name; i++ {
		if nameDigest(items[i].Original) == digest {
			return i + 1, nil
		}
	}
	return first, nil // the item was removed
}
