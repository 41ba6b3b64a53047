package check

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
)

func TestCheckFlags(t *testing.T) {
	with := func(change func(o *Options)) *Options {
		o := &Options{Invocation: cmdutil.Invocation{Words: []string{"c.json"}}}
		change(o)
		return o
	}
	cmdtest.Check(t, NewCmdCheck, map[string]*Options{
		"check c.json":                        with(func(*Options) {}),
		"check c.json http://127.0.0.1:1/mcp": with(func(*Options) {}),
		"check c.json -- server --update":     with(func(*Options) {}),
		"check c.json --update --trust":       with(func(o *Options) { o.Update, o.Trust = true, true }),
		"check c.json --junit r.xml --only a --only b": with(func(o *Options) {
			o.JUnit, o.Only = "r.xml", []string{"a", "b"}
		}),
		"check":                         nil,
		"check -- server":               nil,
		"check c.json --":               nil,
		"check c.json http://x -- y":    nil,
		"check c.json http://x http://": nil,
		"check c.json nowhere":          nil,
	})
}
