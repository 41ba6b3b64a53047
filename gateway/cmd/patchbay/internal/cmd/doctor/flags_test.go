package doctor

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestDoctorFlags(t *testing.T) {
	cmdtest.Check(t, NewCmdDoctor, map[string]*Options{"doctor http://127.0.0.1:1/mcp": {},
		"doctor --login-shell -- server": {LoginShell: true}, "doctor --login http://127.0.0.1:1/mcp": {LogIn: true},
		"doctor http://127.0.0.1:1/mcp tool": nil})
}
