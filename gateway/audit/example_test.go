package audit_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"os"

	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
)

func Example() {
	ctx := context.Background()
	_, key, _ := ed25519.GenerateKey(nil)
	file, _ := config.Parse([]byte(`{"mcpServers": {}}`))
	dir, _ := os.MkdirTemp("", "audit")
	defer func() { _ = os.RemoveAll(dir) }()
	err := func() error {
		log, err := audit.Open(&audit.Options{Dir: dir, Key: key})
		if err != nil {
			return err
		}
		defer log.Close()
		h, err := host.Open(ctx, file, &host.Options{Recorder: log})
		if err != nil {
			return err
		}
		return h.Close()
	}()
	fmt.Println(err)
	// Output: <nil>
}
