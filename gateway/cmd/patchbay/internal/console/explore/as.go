package explore

import (
	"cmp"
	"context"
	stdjson "encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/servers"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Viewer lets operators see the lists of other persons. All fields are required.
type Viewer struct {
	// Find returns the principal of a key, or of a caller; see [gateway.Gateway.FindCaller].
	Find func(key, subject, issuer string) (*mcp.Principal, error)
	// Record records a view; see [gateway.Gateway.RecordView].
	Record func(operator, p *mcp.Principal, server string) error
	// Explain returns the Explainer of the policy in force; see [gateway.AdminOptions].
	Explain func(ctx context.Context, rules stdjson.RawMessage) (gateway.Explainer, error)
}

// persons returns the keys, as "key NAME", and the other callers that sent requests, as "caller ISSUER SUBJECT".
func persons(r *page.Request) (all []string) {
	var known struct {
		Keys    []struct{ Name string }
		Callers []struct{ Subject, Issuer string }
	}
	_ = r.Get("/keys", &known)    // a gateway may have no keys
	_ = r.Get("/callers", &known) // the list then contains only keys
	for _, k := range known.Keys {
		all = append(all, "key "+k.Name)
	}
	for _, c := range known.Callers {
		value := "caller " + c.Issuer + " " + c.Subject
		if c.Subject != "" && c.Issuer != gateway.KeyIssuer && !slices.Contains(all, value) {
			all = append(all, value)
		}
	}
	return all
}

// find returns the principal of a person.
func (v *Viewer) find(as string) (*mcp.Principal, error) {
	if key, ok := strings.CutPrefix(as, "key "); ok {
		return v.Find(key, "", "")
	}
	issuer, subject, _ := strings.Cut(strings.TrimPrefix(as, "caller "), " ")
	return v.Find("", subject, issuer)
}

// viewed returns the lists of a server as another person sees them. Only the first rendering of a page records the
// view, and reads the lists again.
func (e *explorer) viewed(r *page.Request, server, as string) (*catalogue, error) {
	switch {
	case e.opts.Viewer == nil || !r.Role.Grants(page.RoleOperator):
		return nil, page.Problem(http.StatusForbidden, "", "the lists of others require the role operator in the "+
			"console of a gateway")
	case !r.Opens(server):
		return nil, servers.Unknown(server)
	}
	p, err := e.opts.Viewer.find(as)
	if err == nil && !r.Live {
		err = e.opts.Viewer.Record(r.Principal, p, server)
	}
	if err != nil {
		return nil, err
	}
	if e.site.Opens != nil && !e.site.Opens(p, server) {
		return &catalogue{Loaded: true, Err: "this person may not use the server"}, nil
	}
	key := runsKey{server, page.Access(r.Principal) + "\nas " + as}
	if !r.Live {
		e.catalogues.renew(key)
	}
	return e.catalogues.get(key, func(ctx context.Context) *catalogue {
		return e.catalogues.loadAs(ctx, e.opts.Viewer, server, r.Principal, p)
	}), nil
}

// viewAs completes a page with the lists of another person. The page has neither an editor nor runs.
func (e *explorer) viewAs(r *page.Request, p *explorePage) (err error) {
	p.Kinds = itemKinds[:len(itemKinds)-1] // without methods
	if p.At.Kind == kindMethods {
		p.At.Kind = kindTools
	}
	if p.Catalogue, err = e.viewed(r, p.At.Server, p.At.As); err == nil {
		e.selectItem(p)
	}
	return err
}

// loadAs reads the lists of a server as p, with the items that only the operator sees.
func (c *catalogues) loadAs(ctx context.Context, v *Viewer, server string, operator, p *mcp.Principal) *catalogue {
	loaded := c.load(ctx, server, p)
	delete(loaded.Items, kindMethods)
	if loaded.Err != "" {
		return loaded
	}
	own := c.load(ctx, server, operator)
	if own.Err != "" {
		return own // without these lists, hidden items would be missing unnoticed
	}
	explain, err := v.Explain(ctx, nil)
	caller := &policy.Caller{Principal: p, Server: server}
	for kind, method := range listMethods {
		for _, i := range own.Items[kind] {
			if loaded.find(kind, i.Name) != nil {
				continue
			}
			hidden := *i
			hidden.Blocked, hidden.Hidden = "", "the limits of the key, or its profile"
			d := policy.Decision{Do: policy.OutcomeAllow}
			if err == nil { // else there is no policy
				d, _ = explain(ctx, &policy.Action{Kind: policy.ActionList, Method: method, Caller: caller,
					Server: server, Target: i.Name, Definition: stdjson.RawMessage(i.Definition), Time: time.Now()})
			}
			if d.Do != policy.OutcomeAllow && d.Do != policy.OutcomeAsk {
				hidden.Hidden = "rule " + cmp.Or(d.Rule, "default of the policy")
			}
			hidden.Marks = append([]mark{{"hidden by " + hidden.Hidden, "warn"}}, i.Marks...)
			loaded.Items[kind] = append(loaded.Items[kind], &hidden)
		}
	}
	return loaded
}

// listMethods are the methods that list items.
var listMethods = map[itemKind]string{kindTools: driver.MethodToolsList, kindPrompts: driver.MethodPromptsList,
	kindResources: driver.MethodResourcesList, kindTemplates: driver.MethodResourcesTemplatesList}
