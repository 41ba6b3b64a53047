package authserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"
)

// A Store keeps the state of an authorization server: clients, grants, codes, tokens. Values are
// opaque; the server hashes or seals the secrets in them. A record is identified by its kind, such
// as "grant", and a key that is unique within the kind. It carries an expiry, where the zero time
// means never; an expired record is treated as missing.
//
// A store in a file may provide a method Path() string, which returns the path of the file. [New]
// then warns if the keys that seal the secrets are in the same place.
//
// All methods are safe for concurrent use. If the store is persistent, a change survives a crash
// once the method returned.
//
// Several processes can share a store that is linearizable across them: once Put, Update or
// GetAndDelete returned in one process, Get returns the change in all of them, so it must not read
// from a replica that lags behind. Of concurrent GetAndDelete calls in all processes only a single
// call gets the value, and no Update loses the change of another. A database needs a transaction
// with serializable isolation, or a comparison with the old value, for Update and GetAndDelete. The
// clocks of the processes may differ by a few seconds.
//
// Package storetest tests implementations: Run, RunLasting for persistent stores, RunShared for
// stores that several processes can share.
type Store interface {
	// Get returns the value of a record, or nil.
	Get(ctx context.Context, kind, key string) ([]byte, error)
	// Put writes a record. It replaces an existing record.
	Put(ctx context.Context, kind, key string, value []byte, expires time.Time) error
	// GetAndDelete removes a record and returns its value, or nil. Of concurrent calls
	// only a single call gets the value.
	GetAndDelete(ctx context.Context, kind, key string) ([]byte, error)
	// Update calls change with the value of a record, or nil, and stores the result;
	// nil removes the record. The record does not change in the meantime. If change returns an
	// error, Update returns that error and leaves the record as it is. change must not block, must
	// not use the store, and may be called more than once.
	Update(ctx context.Context, kind, key string, change func(old []byte) (value []byte, expires time.Time,
		err error)) error
	// Close releases the resources of the store.
	Close() error
}

// A recordKind is a kind of records in the Store that are JSON and expire.
type recordKind[T any] struct {
	name    string
	missing error // for a record that does not exist or expired
	expires func(*T) time.Time
}

func (k recordKind[T]) get(ctx context.Context, store Store, key string) (*T, error) {
	value, err := store.Get(ctx, k.name, key)
	return k.decode(value, err)
}

func (k recordKind[T]) getAndDelete(ctx context.Context, store Store, key string) (*T, error) {
	value, err := store.GetAndDelete(ctx, k.name, key)
	return k.decode(value, err)
}

func (k recordKind[T]) put(ctx context.Context, store Store, key string, record *T) error {
	value, err := encodeRecord(record)
	if err != nil {
		return err
	}
	return store.Put(ctx, k.name, key, value, k.expires(record))
}

func (k recordKind[T]) update(ctx context.Context, store Store, key string, change func(*T) error) error {
	return store.Update(ctx, k.name, key, func(old []byte) ([]byte, time.Time, error) {
		record, err := k.decode(old, nil)
		if err == nil {
			err = change(record)
		}
		if err != nil {
			return nil, time.Time{}, err
		}
		value, err := encodeRecord(record)
		return value, k.expires(record), err
	})
}

func (k recordKind[T]) decode(value []byte, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	if value == nil {
		return nil, k.missing
	}
	record := new(T)
	if err := json.Unmarshal(value, record); err != nil {
		return nil, err
	}
	if !time.Now().Before(k.expires(record)) {
		return nil, k.missing
	}
	return record, nil
}

// encodeRecord does not escape < and &, which could make the state of a client six times as long.
func encodeRecord(record any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(record)
	return b.Bytes(), err
}

const (
	idBytes    = 16 // IDs are not secret but must be unique and hard to guess
	tokenBytes = 32 // of secrets
)

func tokenLength(n int) int { return base64.RawURLEncoding.EncodedLen(n) }

func randomID() string { return randomText(idBytes) }

func randomToken() string { return randomText(tokenBytes) }

func randomText(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

func isPrintable(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' })
}

// hashKey returns the store key for a secret.
func hashKey(secret string) string {
	return base64.RawURLEncoding.EncodeToString(sumOf(secret))
}

func sumOf(secret string) []byte {
	sum := sha256.Sum256([]byte(secret))
	return sum[:]
}
