package authserver

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"time"
)

const (
	// indexPart is the number of entries in a part of an index: about 15 KB to write for each
	// new record, and more than a network needs.
	indexPart = 256

	// Addresses are grouped by network, because a single party often owns the whole network.
	networkBits4, networkBits6 = 24, 48
)

// A recordIndex bounds the number of records that anyone can create, such as registrations. When
// there are too many, the oldest record of the network with the most records is deleted, so a
// network with many records loses its own first.
//
// An index consists of parts, each of which is a record in the store that contains the entries of
// some of the networks. A change is a single Update, so several processes can share an index.
type recordIndex struct {
	kind     string // of the indexed records
	max      int
	lifetime time.Duration // of the indexed records
}

type indexEntry struct {
	ID      string `json:"i"`
	Network string `json:"n"` // a hash
	Created int64  `json:"t"` // Unix time in seconds
}

func (x recordIndex) parts() int { return max(1, x.max/indexPart) }

func (x recordIndex) name() string { return x.kind + "-index" }

// part returns the key of the part with the entries of a network.
func (x recordIndex) part(network string) string {
	n := binary.BigEndian.Uint32(sumOf(network))
	return strconv.Itoa(int(n % uint32(x.parts())))
}

// add adds the ID of a record, and deletes the records that exceed the bound. The record itself may
// be put into the store afterwards.
func (x recordIndex) add(ctx context.Context, store Store, network, id string) error {
	var evicted []string
	err := x.update(ctx, store, x.part(network), func(entries []indexEntry) []indexEntry {
		evicted = nil
		for len(entries) >= max(1, x.max/x.parts()) {
			i := oldestOfLargest(entries)
			evicted = append(evicted, entries[i].ID)
			entries = slices.Delete(entries, i, i+1)
		}
		return append(entries, indexEntry{id, hashKey(network)[:12], time.Now().Unix()})
	})
	for _, id := range evicted {
		if err == nil {
			_, err = store.GetAndDelete(ctx, x.kind, id)
		}
	}
	return err
}

func (x recordIndex) remove(ctx context.Context, store Store, part, id string) error {
	return x.update(ctx, store, part, func(entries []indexEntry) []indexEntry {
		return slices.DeleteFunc(entries, func(e indexEntry) bool { return e.ID == id })
	})
}

func (x recordIndex) update(ctx context.Context, store Store, part string,
	change func([]indexEntry) []indexEntry) error {
	return store.Update(ctx, x.name(), part, func(old []byte) ([]byte, time.Time, error) {
		var entries []indexEntry
		if old != nil {
			if err := json.Unmarshal(old, &entries); err != nil {
				return nil, time.Time{}, err
			}
		}
		now := time.Now()
		first := now.Add(-x.lifetime).Unix()
		entries = change(slices.DeleteFunc(entries, func(e indexEntry) bool { return e.Created < first }))
		if len(entries) == 0 {
			return nil, time.Time{}, nil
		}
		value, err := json.Marshal(entries)
		return value, now.Add(x.lifetime), err
	})
}

// oldestOfLargest returns the index of the first entry of the network with the most entries. The
// entries are in the order of their creation.
func oldestOfLargest(entries []indexEntry) int {
	count, largest := map[string]int{}, 0
	for _, e := range entries {
		count[e.Network]++
		largest = max(largest, count[e.Network])
	}
	return slices.IndexFunc(entries, func(e indexEntry) bool { return count[e.Network] == largest })
}

// clientNetwork returns the network of the address that a request comes from.
func clientNetwork(ctx context.Context) string {
	key, _ := ctx.Value(clientKeyKey{}).(string)
	if addr, err := netip.ParseAddr(key); err == nil && addr.Is4() {
		network, _ := addr.Prefix(networkBits4)
		return network.String()
	}
	if site, err := netip.ParsePrefix(key); err == nil && site.Bits() > networkBits6 {
		network, _ := site.Addr().Prefix(networkBits6)
		return network.String()
	}
	return key
}
