package mcp

import (
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// An encodedFeature is the JSON of a registered feature, made once for all lists. It counts only for the very value
// it was made of: a copy that somebody changed is encoded anew.
type encodedFeature[V any] struct {
	of   *V
	json []byte
}

func encodeFeature[V any, P interface {
	*V
	appender
}](v P) (*encodedFeature[V], error) {
	raw, err := v.append(nil)
	if err != nil {
		return nil, err
	}
	return &encodedFeature[V]{of: v, json: raw}, nil
}

// An encodedPage is the JSON of a page of a list, made once for all callers. It counts only for those very items, in
// their order.
type encodedPage[V any] struct {
	items []*V
	json  []byte
	dated bool // some items have what not all revisions have
}

// is reports whether items are those of the page. A nil page is no items.
func (p *encodedPage[V]) is(items []*V) bool {
	if p == nil || len(items) != len(p.items) {
		return false
	}
	return len(items) == 0 || &items[0] == &p.items[0] || slices.Equal(items, p.items)
}

// appendPage appends the items of a list, its cursor and its caching hints. known is the page that the items may be.
func appendPage[V any](dst []byte, items []*V, known *encodedPage[V], encoded func(*V) *encodedFeature[V], next string,
	cache Cache) ([]byte, error) {
	if known.is(items) {
		dst = append(dst, known.json...)
	} else {
		var err error
		if dst, err = appendItems(dst, items, encoded); err != nil {
			return nil, err
		}
	}
	if next != "" {
		dst = append(dst, `,"nextCursor":`...)
		dst = jsonscan.AppendQuote(dst, next)
	}
	return appendCache(append(dst, ','), cache)
}

func appendItems[V any](dst []byte, items []*V, encoded func(*V) *encodedFeature[V]) ([]byte, error) {
	dst = append(dst, '[')
	for i, v := range items {
		if i > 0 {
			dst = append(dst, ',')
		}
		if e := encoded(v); e != nil && e.of == v {
			dst = append(dst, e.json...)
			continue
		}
		var err error
		if dst, err = appendValue(dst, v); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}
