package catalogue

import (
	"cmp"
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

// A page is a page of the default size that follows the one before it.
type page struct {
	from  int // index of the first item
	to    int // index behind the last item
	array json.RawMessage
}

// Page returns the items that follow a position, as a JSON array, and the position of the next page,
// which is "" for the last one. The first page follows "". A limit of 0 means [PageSize]; a page of
// very large definitions has fewer items.
//
// The order is that of the configuration, then of the original names. A position names the last item
// of a page, so it stays valid when the catalogue changes: nothing is skipped or repeated but what
// was added or removed. The caller seals it, since it is what a client sends back.
//
// Pages of the default size are built once and always have the same array.
func (c *Catalogue) Page(k Kind, after string, limit int) (items json.RawMessage, next string, err error) {
	list := c.kinds[k].items
	start := 0
	if after != "" {
		if start, err = c.indexAfter(k, after); err != nil {
			return nil, "", err
		}
	}
	var p page
	pages := []page(nil)
	if limit <= 0 || limit == PageSize {
		limit, pages = PageSize, c.kinds[k].pages()
	}
	i := sort.Search(len(pages), func(i int) bool { return pages[i].from >= start })
	if i < len(pages) && pages[i].from == start {
		p = pages[i]
	} else {
		p = newPage(list, start, limit)
	}
	if p.to < len(list) {
		next = c.positionOf(list[p.to-1])
	}
	return p.array, next, nil
}

// positionOf returns the position behind an item: the number of its server, the length of the
// server's name, and both names.
func (c *Catalogue) positionOf(item *Item) string {
	number, length := c.byName[item.Server].position, len(item.Server)
	return strconv.Itoa(number) + " " + strconv.Itoa(length) + " " + item.Server + item.Original
}

func (c *Catalogue) newPages(k Kind) (pages []page) {
	items := c.kinds[k].items
	for from := 0; from < len(items) || from == 0; {
		p := newPage(items, from, PageSize)
		pages = append(pages, p)
		if from = p.to; from == 0 {
			break
		}
	}
	return pages
}

// newPage builds the page that starts at an index.
func newPage(items []*Item, from, limit int) page {
	to, size := from, len("[]")
	for to < len(items) && to-from < limit && (to == from || size+len(items[to].Definition) <= maxPageBytes) {
		size += len(items[to].Definition) + len(",")
		to++
	}
	array := append(make([]byte, 0, size), '[')
	for i, item := range items[from:to] {
		if i > 0 {
			array = append(array, ',')
		}
		array = append(array, item.Definition...)
	}
	return page{from, to, append(array, ']')}
}

// indexAfter returns the index of the first item behind a position. If the position's server was
// removed, that is the first item of the servers that followed it.
func (c *Catalogue) indexAfter(k Kind, after string) (int, error) {
	position, rest, _ := strings.Cut(after, " ")
	length, rest, _ := strings.Cut(rest, " ")
	at, err1 := strconv.Atoi(position)
	n, err2 := strconv.Atoi(length)
	if err1 != nil || err2 != nil || n < 0 || n > len(rest) {
		return 0, ErrCursor
	}
	server, original := rest[:n], rest[n:]
	m := c.byName[server]
	if m != nil {
		at = m.position
	}
	items := c.kinds[k].items
	return sort.Search(len(items), func(i int) bool {
		order := cmp.Compare(c.byName[items[i].Server].position, at)
		if order == 0 && m != nil {
			return items[i].Original > original
		}
		return order > 0 || order == 0 && m == nil
	}), nil
}
