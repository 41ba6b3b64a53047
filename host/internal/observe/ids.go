package observe

import (
	"crypto/rand"
	"strconv"
	"sync/atomic"
)

// IDs makes the IDs of calls. An ID consists of the random prefix and a number. IDs is safe for
// concurrent use.
type IDs struct {
	Prefix string
	last   atomic.Uint64
}

// NewIDs returns IDs with a new prefix.
func NewIDs() *IDs { return &IDs{Prefix: rand.Text()[:12] + "-"} }

// Next returns the next ID.
func (i *IDs) Next() string { return i.Prefix + strconv.FormatUint(i.last.Add(1), 36) }
