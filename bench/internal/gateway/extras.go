package gateway

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/gateway/audit"
	"github.com/patchbay-mcp/patchbay/gateway/celpolicy"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// An Extra is what a gateway does besides passing requests on.
type Extra string

// Extras. Without one, a gateway has no policy, no pins and no recorder.
const (
	Policy200      Extra = "policy-200"       // 200 rules, most of which name another tool or server
	Policy200All   Extra = "policy-200-all"   // 200 rules that read the arguments of every call
	Records        Extra = "records"          // an audit log with the shape of arguments
	PinsAndRecords Extra = "pins-and-records" // the same, and pins, as `patchbay gateway` with an audit log
	Pins           Extra = "pins"             // pins alone, as `patchbay gateway` without settings
)

// Rules returns 200 rules, of which none matches a call of the load.
func (e Extra) Rules() string {
	const rules = 200
	var all []string
	for n := range rules {
		when := []string{
			`server.name == 'crm%[1]d' && !args.path.startsWith('/srv/%[1]d/')`,
			`tool.name == 'delete_%[1]d' && tool.annotations.destructive == true`,
			`server.name == '` + echo.GatewayServer(0) + `' && tool.name == 'write_%[1]d' && args.path.contains('..')`,
			`tool.name.startsWith('admin%[1]d_') && !('admin' in caller.scopes)`,
			`server.name in ['mail%[1]d', 'chat%[1]d'] && args.to.endsWith('@example.org')`,
		}[n%5]
		if n%20 == 19 { // 10 rules are about this server, and what is sent to it
			when = `server.name == '` + echo.GatewayServer(0) + `' && args.message.contains('key-%[1]d')`
		}
		if e == Policy200All {
			when = []string{
				`args.message.startsWith('/no/%[1]d')`,
				`args.message.contains('key-%[1]d')`,
				`args.message == 'no %[1]d'`,
				`has(args.mode) && args.mode in ['a', 'b%[1]d']`,
				`size(args.message) > 100%[1]d`,
			}[n%5]
		}
		all = append(all, fmt.Sprintf(`{"name":"r%d","on":["call"],"do":"deny","when":%q}`, n, fmt.Sprintf(when, n)))
	}
	return `{"default":"allow","rules":[` + strings.Join(all, ",") + `]}`
}

// settings returns the settings of a file. Callers share the connections to the given number of servers.
func (e Extra) settings(shared int) string {
	// No search in place of a long list, and no rate of a caller, which the load would exceed.
	settings := `{"tools":{"mode":"list"},"limits":{"perCaller":"off"}`
	if shared > 0 {
		entries := make([]string, shared)
		for i := range entries {
			entries[i] = fmt.Sprintf(`%q:{"share":"shared"}`, echo.GatewayServer(i))
		}
		settings += `,"servers":{` + strings.Join(entries, ",") + `}`
	}
	if e == Policy200 || e == Policy200All {
		settings += `,"policy":` + e.Rules()
	}
	return settings + "}"
}

// apply sets options. dir is a folder for files.
func (e Extra) apply(f *config.File, o *host.Options, dir string) error {
	switch e {
	case Policy200, Policy200All:
		p, err := celpolicy.New(f, nil)
		if err != nil {
			return err
		}
		o.Policy = p
	case Pins, PinsAndRecords:
		o.Pins = true
	}
	if e != Records && e != PinsAndRecords {
		return nil
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	log, err := audit.Open(&audit.Options{Dir: dir, Key: key})
	if err != nil {
		return err
	}
	o.Recorder = log // open until the process ends
	return nil
}
