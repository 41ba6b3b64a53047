package cmdutil

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

// Views are the addresses of the pages of apps, which a console serves at a second listener.
type Views struct {
	Addr   string // host:port; empty for the default
	Origin string // the URL for browsers; empty for a console that only this machine opens
}

// AddFlags adds the flags --view-addr and --view-origin. The help of a command that must fit a screen
// does not show them: the guide of the console describes them.
func (v *Views) AddFlags(cmd *cobra.Command, hidden bool) {
	set := cmd.Flags()
	set.StringVar(&v.Addr, "view-addr", "", "serve the pages of apps at this `host:port`")
	set.StringVar(&v.Origin, "view-origin", "", "`URL` of --view-addr behind a proxy, with another host")
	set.Lookup("view-addr").Hidden, set.Lookup("view-origin").Hidden = hidden, hidden
}

// Check returns an error for an invalid origin, and for flags of a command that serves no console.
func (v *Views) Check(hasConsole bool) error {
	switch {
	case v.Origin != "" && !netx.IsOrigin(v.Origin):
		return fmt.Errorf("invalid --view-origin %q: must be an https URL without a path, such as "+
			"https://views.example.com", v.Origin)
	case !hasConsole && *v != Views{}:
		return errors.New("--view-addr and --view-origin are addresses of a console: add --console")
	}
	return nil
}
