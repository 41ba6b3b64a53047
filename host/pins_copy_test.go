package host_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// inspected returns the pins of a server that a host with a state of its own has found.
func inspected(
	t *testing.T, shop mcp.Handler, on mcptest.Combination, settings string,
) (pins []*pin.Pin, found *state.Memory) {
	t.Helper()
	found = &state.Memory{}
	h := openPinned(t, map[string]mcp.Handler{"shop": shop}, on, settings, found)
	pins, err := h.Operator().Inspect(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	return pins, found
}

// statuses returns the status of each pin.
func statuses(pins []*pin.Pin) (all []string) {
	for _, p := range pins {
		all = append(all, fmt.Sprintf("%s %s %s", p.Kind, p.Name, p.Status()))
	}
	return all
}

// What a user was shown is approved, and what the server has changed before the first connection of
// another host is not.
func TestCopiedPinsAreTheApprovedOnes(t *testing.T) {
	for _, up := range oneProcess(mcptest.Combinations()) {
		t.Run(up.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testCopied(t, up) })
		})
	}
}

func testCopied(t *testing.T, up mcptest.Combination) {
	store, shop := &state.Memory{}, newTurncoat()
	pins, found := inspected(t, shop, up, "{}")
	want := []string{"prompt greet approved", "resource file:///a approved", "server instructions approved",
		"server serverInfo approved", "tool search approved", "tool turn approved"}
	if got := statuses(pins); !slices.Equal(got, want) {
		t.Fatalf("inspected %q, want %q", got, want)
	}
	if n := shop.dials.Load(); n != 1 {
		t.Errorf("%d connections, want one", n)
	}
	copied, undo, err := pin.Copy(t.Context(), store, found)
	if got := statuses(copied); err != nil || undo == nil || !slices.Equal(got, want) {
		t.Fatalf("copied %q, %v, want %q", got, err, want)
	}
	turnDirectly(t, shop, true)
	h := openPinned(t, map[string]mcp.Handler{"shop": shop}, up, "{}", store)
	c := client(t, h, &policy.Caller{})
	if names := toolNames(t, c); !slices.Equal(names, []string{"shop__search", "shop__turn"}) {
		t.Errorf("listed before the first connection: %q", names)
	}
	if f, text := failureOf(t, c, "shop__search"); f == nil || f.Code != hosterr.CodeQuarantined ||
		!strings.Contains(text, "has changed since it was approved") {
		t.Errorf("the changed tool: %+v, %s", f, text)
	}
	if f, _ := failureOf(t, c, "shop__add"); f == nil || f.Code != hosterr.CodeQuarantined || shop.added.Load()+shop.searched.Load() > 0 {
		t.Errorf("the new tool: %+v", f)
	}
	if r, err := c.CallTool(t.Context(), "shop__turn", map[string]any{"Evil": false}); err != nil || r.Text() != "turned" {
		t.Errorf("the tool that was shown: %+v, %v", r, err)
	}
}

// turnDirectly changes the definitions of a server without a host.
func turnDirectly(t *testing.T, shop *turncoat, evil bool) {
	t.Helper()
	c, err := mcp.Connect(t.Context(), mcp.InMemory(shop), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if r, err := c.CallTool(t.Context(), "turn", map[string]any{"Evil": evil}); err != nil || r.Text() != "turned" {
		t.Fatalf("turn: %+v, %v", r, err)
	}
}

// A server that had no prompts when the user saw it cannot add one before the first connection.
func TestCopiedPinsHaveEmptyLists(t *testing.T) {
	s := mcp.NewServer("shop", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "search"}, func(context.Context, struct{}) (string, error) { return "found", nil })
	store := &state.Memory{}
	_, found := inspected(t, s, inMemory, "{}")
	if _, _, err := pin.Copy(t.Context(), store, found); err != nil {
		t.Fatal(err)
	}
	mcp.AddPrompt(s, &mcp.Prompt{Name: "greet"}, func(context.Context, struct{}) (string, error) { return "hello", nil })
	pins, err := openPinned(t, map[string]mcp.Handler{"shop": s}, inMemory, "{}", store).
		Operator().Inspect(t.Context(), "shop")
	want := []string{"prompt greet new", "server serverInfo approved", "tool search approved"}
	if got := statuses(pins); err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
}

func TestCopyPinsAddsToTheRecord(t *testing.T) {
	store, shop := &state.Memory{}, newTurncoat()
	_, found := inspected(t, shop, inMemory, "{}")
	if _, _, err := pin.Copy(t.Context(), store, found); err != nil {
		t.Fatal(err)
	}
	turnDirectly(t, shop, true)
	h := openPinned(t, map[string]mcp.Handler{"shop": shop}, inMemory, "{}", store)
	if _, err := h.Operator().Inspect(t.Context(), "shop"); err != nil || len(pendingPins(t, store)) != 3 {
		t.Fatalf("%v, %q waits", err, statuses(pendingPins(t, store)))
	}
	before := snapshot(t, store)
	_, found = inspected(t, shop, inMemory, "{}")
	pins, undo, err := pin.Copy(t.Context(), store, found)
	if err != nil || len(pendingPins(t, store)) != 0 {
		t.Fatalf("%v, %q waits", err, statuses(pendingPins(t, store)))
	}
	search := pins[slices.IndexFunc(pins, func(p *pin.Pin) bool { return p.Name == "search" })]
	if len(search.Approved) != 2 || !strings.Contains(string(search.Approved[0].JSON), "id_rsa") {
		t.Errorf("got %d approved forms, want the new one and the old one", len(search.Approved))
	}
	if err := undo(t.Context()); err != nil || snapshot(t, store) != before {
		t.Errorf("undo: %v, got\n%s\nwant\n%s", err, snapshot(t, store), before)
	}
	_, undo, err = pin.Copy(t.Context(), store, found)
	if err != nil {
		t.Fatal(err)
	}
	turnDirectly(t, shop, false)
	if _, err := h.Operator().Inspect(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	if err := undo(t.Context()); !errors.Is(err, state.ErrConflict) {
		t.Errorf("undo after another change: %v, want ErrConflict", err)
	}
	empty := &state.Memory{}
	_, undo, err = pin.Copy(t.Context(), empty, found)
	if err := errors.Join(err, undo(t.Context())); err != nil || snapshot(t, empty) != "" {
		t.Errorf("undo without a record before: %v, %s", err, snapshot(t, empty))
	}
}

// snapshot returns all pins of a state as it has them.
func snapshot(t *testing.T, store state.Store) string {
	t.Helper()
	var b strings.Builder
	for e, err := range store.List(t.Context(), "pins") {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %s\n", e.Key, e.Value)
	}
	return b.String()
}

// Settings that want a review get one also for definitions that a user was shown.
func TestCopyPinsKeepsReview(t *testing.T) {
	const settings = `{"servers": {"shop": {"trust": "review"}}}`
	store, shop := &state.Memory{}, newTurncoat()
	_, found := inspected(t, shop, inMemory, settings)
	pins, _, err := pin.Copy(t.Context(), store, found)
	if err != nil || len(pins) != 6 || len(pendingPins(t, store)) != 6 {
		t.Errorf("%v, got %q", err, statuses(pins))
	}
	if err := pin.Approve(t.Context(), store, pins...); err != nil {
		t.Fatal(err)
	}
	if pins, _, err = pin.Copy(t.Context(), store, found); err != nil || len(pendingPins(t, store)) != 0 {
		t.Errorf("approved before: %v, got %q", err, statuses(pins))
	}
}

func TestInspectFails(t *testing.T) {
	h := openPinned(t, map[string]mcp.Handler{"shop": newTurncoat()}, inMemory, "{}", &state.Memory{})
	if _, err := h.Operator().Inspect(t.Context(), "nosuch"); err == nil || !strings.Contains(err.Error(), `unknown server "nosuch"`) {
		t.Errorf("unknown server: %v", err)
	}
	without := openFile(t, map[string]any{"shop": map[string]string{"command": "shop"}}, "{}", &host.Options{
		Dial: func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(newTurncoat()), nil }})
	if _, err := without.Operator().Inspect(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), `must contain "trust"`) {
		t.Errorf("without pins: %v", err)
	}
}
