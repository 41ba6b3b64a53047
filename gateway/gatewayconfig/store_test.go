package gatewayconfig_test

import (
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
)

func TestStoresContainNoPassword(t *testing.T) {
	for _, valid := range []string{"redis://127.0.0.1:6379", "rediss://redis:6379/1",
		"redis://app:${REDIS_PASSWORD}@redis:6379",
		"redis://:${file:/run/secrets/redis}@redis:6379", "redis://redis:${PORT}", "${PATCHBAY_STORE}",
		"redis://a:26379?addr=b:26379&master_set=main", "bolt:/var/lib/patchbay/state.db",
		"postgres://app:${PASSWORD}@db/patchbay?sslmode=verify-full", "postgresql://app@db:5432/patchbay",
		"postgres://app:${PASSWORD}@a:5432,b:5433/patchbay?target_session_attrs=read-write",
		"postgres:///patchbay?host=/run/postgresql", "postgres://db/patchbay?sslkey=k&sslpassword=${PASSWORD}",
		"redis://app%40home:${X}@h"} {
		if err := gatewayconfig.CheckStore(valid); err != nil {
			t.Errorf("%s: %v", valid, err)
		}
	}
	for _, invalid := range []string{"redis://:hunter2@redis:6379", "rediss://app:hunter2${X}@redis:6379", "", "bolt:",
		"redis:hunter2", "http://hunter2", "redis://redis:6379?password=hunter2", "postgres://app:hunter2@db/patchbay",
		"postgres:hunter2", "postgres://db/patchbay?password=hunter2", "postgres://db/patchbay?password=${X}",
		"postgres://db/patchbay?sslpassword=hunter2", "postgres://db/x?sslpassword=${X}&sslpassword=hunter2",
		"postgres://db/patchbay?%70assword=hunter2",
		"postgres://db/patchbay?sslmode=%zz", "redis://:%3${X}@h", "redis://:%${X}@h",
		"redis://:hunter2@%zz", "hunter2", "redis://:1@h", "redis://:2@h", "redis://:%31@h:${PORT}", "redis://:12@h",
		"rediss://app:1@h:${PORT}", "1", "2", "redis://:1${X}@h"} {
		err := gatewayconfig.CheckStore(invalid)
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want an error without the password", invalid, err)
		}
	}
}
