package authserver

import (
	"context"
	"time"
)

// A Store keeps what an authorization server knows: clients, grants, codes, tokens. Values are opaque; secrets among them
// are hashed or sealed before they come here. All methods are safe for concurrent use, and what a method that changes
// something has returned from is not forgotten by a crash, if the store is one that lasts.
//
// A kind names a sort of record, such as "grant"; keys are unique within their kind. A record that has expired is as if it
// were not there; the zero time is never.
type Store interface {
	// Get returns the value of a record, nil if there is none.
	Get(ctx context.Context, kind, key string) ([]byte, error)
	// Put writes a record, whatever was there before.
	Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error
	// Take returns the value of a record, nil if there is none, and removes it: of many who take it only one gets it.
	Take(ctx context.Context, kind, key string) ([]byte, error)
	// Update calls change with the value of a record, nil if there is none, and puts what it gives in its place; nil
	// removes the record. No other change of the record happens meanwhile. An error of change is that of Update, and
	// leaves the record as it is. change returns at once and uses no store.
	Update(ctx context.Context, kind, key string, change func(old []byte) (value []byte, expires time.Time, err error)) error
	// Count returns the number of records of a kind. It is asked for at every login that begins and every registration, so
	// it must take about as long with many records as with few. Records that have expired may be counted until they are
	// removed, which has to come within minutes, and by Count itself if nothing else is called: who waits for the number
	// to fall writes nothing.
	Count(ctx context.Context, kind string) (int, error)
	// Close ends the use of the store.
	Close() error
}
