package root

import (
	"io"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
)

// A secret that is typed is not shown, and the terminal shows what is typed afterwards.
func TestGatewaySecretIsNotEchoed(t *testing.T) {
	t.Setenv(userdir.EnvState, t.TempDir())
	freshVault(t)
	p := newPTY(t)
	echoes := func() bool {
		mode, err := unix.IoctlGetTermios(int(p.replica.Fd()), unix.TCGETS)
		return err != nil || mode.Lflag&unix.ECHO != 0
	}

	o := p.run(func() {
		p.await("hidden", "")
		for deadline := time.Now().Add(time.Minute); echoes() && time.Now().Before(deadline); {
			<-time.After(time.Millisecond)
		}
		if _, err := io.WriteString(p.master, "typed-secret\n"); err != nil {
			t.Error(err)
		}
	}, "gateway", "secret", "set", "api")
	all := o.stdout + o.stderr
	if o.status != exit.OK || strings.Contains(all, "typed-secret") || !echoes() {
		t.Errorf("%+v, echo %t: want a stored secret, not shown, and the echo again", o, echoes())
	}
	v := newRun(strings.NewReader(""), io.Discard, io.Discard)
	if value, set, _ := v.Vault.Lookup(t.Context(), "secret:api"); !set || value != "typed-secret" {
		t.Errorf("got %q, %t, want the secret", value, set)
	}
}
