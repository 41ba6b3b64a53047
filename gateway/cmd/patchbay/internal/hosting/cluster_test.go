package hosting

import (
	"os"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

func TestLoopbackAddressOfClusterIsReported(t *testing.T) {
	for _, c := range []struct {
		listen, advertise, store string
		warns                    bool
	}{
		{"127.0.0.1:7801", "", "redis at 10.0.0.9:6379", true},
		{"0.0.0.0:7801", "localhost:7801", "redis at redis:6379", true},
		{"[::1]:7801", "", "redis at 127.0.0.1:6379,10.0.0.9:6379", true},
		{"127.0.0.1:7801", "gateway-1:7801", "redis at redis:6379", false},
		{"127.0.0.1:7801", "", "redis at 127.0.0.1:6379", false},
		{"127.0.0.1:7801", "", "redis at localhost", false},
		{"127.0.0.1:7801", "", "postgres at db:5432", false},
	} {
		got := loopbackText(&gatewayconfig.Cluster{Listen: c.listen, Advertise: c.advertise}, []string{c.store})
		if (got != "") != c.warns {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}
