package pinrecord_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/state"
)

// FuzzRecord decodes records, which another program may have changed.
func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"server":"s","kinds":{"tool":{"complete":true,"items":{"t":{"listed":"a",` +
		`"approved":[{"digest":"a","json":"{\"name\":\"t\",\"inputSchema\":{}}"}],"pending":[{"digest":"b","json":"{"}]}}}}}`))
	f.Add([]byte(`{"kinds":{"tool":null}}`))
	f.Add([]byte(`{"kinds":{"prompt":{"items":{"p":null}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		encoded, pins, err := check(text)
		if err != nil {
			return
		}
		again, same, err := check(encoded)
		if err != nil || same != pins || !bytes.Equal(encoded, again) {
			t.Fatalf("%s\n%s\n%d and %d pins, %v", encoded, again, pins, same, err)
		}
	})
}

// check decodes a record, and returns it encoded with the number of its pins.
func check(text []byte) (encoded []byte, pins int, err error) {
	r, err := pinrecord.Decode(text)
	if err != nil {
		return nil, 0, err
	}
	encoded, err = r.Encode()
	store := &state.Memory{}
	if err := store.CompareAndSet(context.Background(), "pins", "id", 0, text); err != nil {
		return nil, 0, err
	}
	all, _ := pin.List(context.Background(), store)
	for _, p := range all {
		_, _ = p.Diff(), p.Describe()
	}
	for k := range pinrecord.Kinds {
		_ = r.List(catalogue.Kind(k))
	}
	return encoded, len(all), err
}
