package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/server"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// CallerFrom returns the caller whose request ctx belongs to, or nil. It is for [Options.Dial] and
// the middleware of [Options.Client]. If it is called while the host connects to a server, the host
// assumes that the lists of the server depend on the caller.
func CallerFrom(ctx context.Context) *policy.Caller { return upstream.CallerFrom(ctx) }

// viewKey returns a key of the view: callers with equal keys share it.
func viewKey(c *policy.Caller, sessions bool) string {
	parts := append(make([]string, 0, viewKeyParts), c.Key(), c.Profile, c.Server, "",
		strconv.FormatBool(c.Single), c.Workspace, "", "")
	if sessions {
		parts[3] = c.Session
	}
	if c.IsLimited() {
		parts[6] = fmt.Sprintf("%q %q %t", c.Servers, c.Only, c.ReadOnly)
	}
	if c.Principal != nil {
		parts[7] = claimsKey(c.Principal.Claims)
		scopes := slices.Clone(c.Principal.Scopes)
		slices.Sort(scopes)
		parts = append(parts, scopes...)
	}
	return server.JoinKey(parts...)
}

// viewKeyParts is the capacity for the parts of the key of a view, with a few scopes.
const viewKeyParts = 12

// claimsKey returns a key that is unequal for different claims: a policy decides by them.
func claimsKey(claims map[string]any) string {
	switch len(claims) {
	case 0:
		return ""
	case 1: // that of a key of package gateway; without reflection
		for name, value := range claims {
			if text, ok := value.(string); ok {
				return server.JoinKey(name, text)
			}
		}
	}
	text, _ := json.Marshal(claims) // of JSON; others match no rule
	return string(text)
}

// mayUse reports whether the limits of the caller leave an item.
func mayUse(c *policy.Caller, item *catalogue.Item) bool {
	switch item.Kind {
	case catalogue.Tools:
		return c.May(policy.ActionCall) && (!c.ReadOnly || isReadOnly(item.Raw))
	case catalogue.Prompts:
		return c.May(policy.ActionGet)
	case catalogue.Events:
		return c.May(policy.ActionEvent)
	}
	return c.May(policy.ActionRead)
}

// isReadOnly reports whether a tool declares that it does not modify its environment.
func isReadOnly(definition []byte) bool {
	annotations, _ := jsonscan.Get(definition, "annotations")
	if jsonscan.Kind(annotations) != '{' {
		return false
	}
	hint, _ := jsonscan.Get(annotations, "readOnlyHint")
	return string(hint) == "true"
}

// checkMethod returns the error of a request whose method the limits of the caller refuse: as if
// the item or the extension did not exist. It must not check lists and references, which contain
// only visible items.
func (v *View) checkMethod(req *mcp.Request) error {
	c := v.caller
	if c.Only == nil && !c.ReadOnly {
		return nil
	}
	kind, param := policy.ActionOther, ""
	switch req.Method {
	case "server/discover", "subscriptions/listen":
		return nil
	case "completion/complete":
		if c.May(policy.ActionGet) && c.May(policy.ActionRead) || c.May(referenceKind(req)) {
			return nil
		}
		return errUnknownReference
	case methodToolsCall:
		kind, param = policy.ActionCall, "name"
	case "prompts/get":
		kind, param = policy.ActionGet, "name"
	case "resources/read":
		kind, param = policy.ActionRead, "uri"
	case call.MethodEventsPoll, wire.MethodEventsStream, wire.MethodEventsSubscribe, wire.MethodEventsUnsubscribe:
		kind = policy.ActionEvent
	case task.MethodGet, task.MethodUpdate, task.MethodCancel, task.MethodResult, task.MethodList:
		kind = policy.ActionCall
	case call.MethodSkillList, call.MethodSkillGet, call.MethodDirectoryRead:
		kind = policy.ActionRead
	default:
		if list, isList := catalogue.KindOf(req.Method); isList {
			if list != catalogue.Events || c.May(policy.ActionEvent) {
				return nil
			}
			kind = policy.ActionEvent
		}
	}
	switch {
	case kind != policy.ActionOther && c.May(kind), kind == policy.ActionOther && c.Only == nil && !c.ReadOnly:
		return nil
	case param == "":
		return mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
	}
	name := jsonscan.GetString(req.Params, param)
	return v.refused(req, kind, name, unknownTarget(kind, name))
}

// referenceKind returns the kind of request that a reference of completion/complete is for.
func referenceKind(req *mcp.Request) policy.ActionKind {
	ref, _ := req.Param("ref")
	if jsonscan.GetString(ref, "type") == "ref/prompt" {
		return policy.ActionGet
	}
	return policy.ActionRead
}

// unknownTarget returns the error of a request that names an item which the caller must not see.
func unknownTarget(kind policy.ActionKind, name string) error {
	switch kind {
	case policy.ActionRead:
		return mcp.NotFound(name)
	case policy.ActionGet:
		return catalogue.Prompts.Unknown(name)
	default:
		return catalogue.Tools.Unknown(name)
	}
}
