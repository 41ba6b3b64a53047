package authserver

import (
	"context"
	"time"
)

// A Store keeps the state of an authorization server: clients, grants, codes, tokens. Values are
// opaque; the server hashes or seals the secrets in them. A record is identified by its kind, such
// as "grant", and a key that is unique within the kind. It has an expiry, where the zero time means
// never; an expired record is treated as missing.
//
// All methods are safe for concurrent use. If the store is persistent, a change survives a crash
// once the method has returned. Package storetest tests implementations.
type Store interface {
	// Get returns the value of a record, nil if there is none.
	Get(ctx context.Context, kind, key string) ([]byte, error)
	// Put writes a record. It replaces an existing one.
	Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error
	// GetAndDelete removes a record and returns its value, nil if there is none. Of concurrent calls only
	// one gets the value.
	GetAndDelete(ctx context.Context, kind, key string) ([]byte, error)
	// Update calls change with the value of a record, nil if there is none, and stores the result;
	// nil removes the record. The record does not change in the meantime. If change returns an
	// error, Update returns that error and leaves the record as it is. change must not block, must
	// not use the store, and may be called more than once.
	Update(ctx context.Context, kind, key string, change func(old []byte) (value []byte, expires time.Time,
		err error)) error
	// Count returns the number of records of a kind. It is called for each new login and
	// registration, so its cost must not grow with the number of records. It may include expired
	// records for some minutes, but must not depend on other calls to remove them: a caller that
	// waits for the number to fall calls nothing else.
	Count(ctx context.Context, kind string) (int, error)
	// Close releases the resources of the store.
	Close() error
}
