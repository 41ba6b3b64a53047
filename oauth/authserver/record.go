package authserver

import (
	"bytes"
	"context"
	"encoding/json"
	"time"
)

// A recordKind is a kind of records in the Store that are JSON and expire.
type recordKind[T any] struct {
	name    string
	missing error // for a record that does not exist or has expired
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
