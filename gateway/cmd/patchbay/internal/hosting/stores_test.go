package hosting

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/patchbay-mcp/patchbay/stores/bolt"
	"github.com/patchbay-mcp/patchbay/stores/redis"
)

// A single gateway at a time delivers for the subscriptions in a file.
func TestWebhooksAreDeliveredByOneGateway(t *testing.T) {
	file := filepath.Join(t.TempDir(), "state.db")
	for name, c := range map[string]struct {
		stores *Stores
		path   string
		want   string // the file
	}{
		"beside the state": {&Stores{}, "", ""},
		"beside --store":   {&Stores{File: file}, "", file + ".webhooks"},
		"events.store":     {&Stores{File: file}, file + ".other", file + ".other"},
	} {
		first, err := c.stores.Webhooks(c.path)
		if err != nil {
			t.Fatal(name, err)
		}
		if _, err := c.stores.Webhooks(c.path); !errors.Is(err, bolt.ErrInUse) {
			t.Errorf("%s: got %v, want ErrInUse", name, err)
		}
		if c.want != "" {
			if _, err := bolt.OpenWebhooks(c.want, &bolt.Options{Wait: -1}); !errors.Is(err, bolt.ErrInUse) {
				t.Errorf("%s: got %v for %s, want ErrInUse", name, err, c.want)
			}
		}
		if err := first.Close(); err != nil {
			t.Error(name, err)
		}
	}
	if _, err := (&Stores{redis: new(redis.Store)}).Webhooks(file); !errors.Is(err, ErrSharedWebhooks) {
		t.Errorf("got %v, want ErrSharedWebhooks", err)
	}
}
