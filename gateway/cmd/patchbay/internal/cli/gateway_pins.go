package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/internal/spell"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// gatewayState returns the state of gateways, which several may use at the same time.
func gatewayState() (*bolt.StateStore, error) {
	dir, err := stateDir("gateway")
	if err != nil {
		return nil, err
	}
	return bolt.OpenState(filepath.Join(dir, "state.db"), nil)
}

// pinsCommand returns the command that lists definitions. It needs no running gateway.
func pinsCommand(f *factory) *cobra.Command {
	var diff, all bool
	cmd := &cobra.Command{
		Use:                   "pins [NAME…]",
		Short:                 "List approved and quarantined definitions of tools (pinning, rug pull)",
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     completePins(f, false),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, pins, err := namedPins(cmd.Context(), f, args)
			if err != nil {
				return err
			}
			if diff && !all && len(args) == 0 {
				pins = quarantinedPins(pins)
			}
			if f.Flags.json {
				f.IO.Out.value(map[string][]pinReport{"pins": pinReports(pins, diff)})
				return nil
			}
			printPins(f, pins, diff, all || len(args) > 0)
			return nil
		},
	}
	cmd.Flags().BoolVar(&diff, "diff", false, "show how quarantined definitions differ from approved ones")
	cmd.Flags().BoolVar(&all, "all", false, "list every approved definition too, not only their number")
	return cmd
}

// approvePins approves the quarantined definitions of a server or a name, after it has shown them.
func approvePins(ctx context.Context, f *factory, names []string, yes bool) error {
	state, pins, err := namedPins(ctx, f, names)
	if err != nil {
		return err
	}
	if pins = quarantinedPins(pins); len(pins) == 0 {
		return &coded{exitNotFound, fmt.Errorf("nothing of %s waits for approval; see \"patchbay gateway pins\"",
			cleanLine(strings.Join(names, ", ")))}
	}
	if !f.Flags.json {
		showPins(f, pins)
	}
	if !yes {
		if !f.IO.mayPrompt() {
			return usage(errors.New("approval needs a terminal, or --yes after \"patchbay gateway pins --diff\""))
		}
		approved, err := f.Ask.confirm(ctx, "Approve these definitions?", "n")
		if err != nil && !errors.Is(err, errDeclined) && !errors.Is(err, errCancelled) {
			return err
		}
		if !approved {
			return &coded{exitFailure, errors.New("nothing was approved")}
		}
	}
	if err := pin.Approve(ctx, state, pins...); err != nil {
		return err
	}
	if c, _, err := readConfig(f, ""); err == nil {
		recordApproved(ctx, f, c.file, pins)
	}
	if f.Flags.json {
		f.IO.Out.value(map[string][]pinReport{"approved": pinReports(pins, false)})
		return nil
	}
	f.IO.Err.printf("Approved: %s. A running gateway uses them within 2 seconds.", counted(len(pins), "definition"))
	return nil
}

// recordApproved records each form of a definition that has waited and was approved.
func recordApproved(ctx context.Context, p *factory, f *config.File, pins []*pin.Pin) {
	var details []map[string]any
	for _, pinned := range pins {
		for _, d := range pinned.Pending {
			details = append(details, map[string]any{"action": "approve definition", "server": pinned.Server,
				"kind": pinned.Kind, "name": pinned.Name, "digest": d.Digest})
		}
	}
	recordAdmin(ctx, p, f, details...)
}

// namedPins returns the pins of all servers, or those of names: a server, or SERVER/NAME with the name
// that the server uses, or the public name SERVER__NAME.
func namedPins(ctx context.Context, f *factory, names []string) (*bolt.StateStore, []*pin.Pin, error) {
	state, err := gatewayState()
	if err != nil {
		return nil, nil, err
	}
	all, err := pin.List(ctx, state)
	if err != nil || len(names) == 0 {
		return state, all, err
	}
	var found []*pin.Pin
	for _, name := range names {
		matches := slices.DeleteFunc(slices.Clone(all), func(pinned *pin.Pin) bool {
			return name != pinned.Server && name != pinName(pinned) && name != pinned.Server+"__"+pinned.Name
		})
		if len(matches) == 0 {
			return nil, nil, &coded{exitNotFound, unknownName("server or definition", name, pinNames(all, name))}
		}
		for _, pinned := range matches {
			if !slices.Contains(found, pinned) {
				found = append(found, pinned)
			}
		}
	}
	return state, found, nil
}

func pinName(pinned *pin.Pin) string { return pinned.Server + "/" + pinned.Name }

func quarantinedPins(pins []*pin.Pin) []*pin.Pin {
	return slices.DeleteFunc(slices.Clone(pins), func(pinned *pin.Pin) bool { return len(pinned.Pending) == 0 })
}

// A pinReport is a pin in JSON.
type pinReport struct {
	Server   string             `json:"server"`
	Kind     pin.Kind           `json:"kind"`
	Name     string             `json:"name"`
	Status   string             `json:"status"`
	Approved []definitionReport `json:"approved"`
	Pending  []definitionReport `json:"pending"`
	Diff     []string           `json:"diff,omitempty"`
}

type definitionReport struct {
	Digest     string          `json:"digest"`
	Time       time.Time       `json:"time"`
	Definition json.RawMessage `json:"definition,omitempty"`
}

func pinReports(pins []*pin.Pin, diff bool) []pinReport {
	reports := []pinReport{}
	definitions := func(all []pin.Definition) []definitionReport {
		list := []definitionReport{}
		for _, d := range all {
			list = append(list, definitionReport{d.Digest, d.Time, d.JSON})
		}
		return list
	}
	for _, pinned := range pins {
		r := pinReport{Server: pinned.Server, Kind: pinned.Kind, Name: pinned.Name, Status: pinned.Status(),
			Approved: definitions(pinned.Approved), Pending: definitions(pinned.Pending)}
		if diff {
			r.Diff = pinned.Diff()
		}
		reports = append(reports, r)
	}
	return reports
}

// printPins prints the quarantined definitions, and the approved ones or their number.
func printPins(f *factory, pins []*pin.Pin, diff, approved bool) {
	if diff {
		showPins(f, pins)
		return
	}
	var rows [][]string
	count := map[string]int{}
	var servers []string
	for _, pinned := range pins {
		if len(pinned.Pending) == 0 && !approved {
			if count[pinned.Server]++; count[pinned.Server] == 1 {
				servers = append(servers, pinned.Server)
			}
			continue
		}
		newest := slices.Concat(pinned.Pending, pinned.Approved)[0]
		rows = append(rows, []string{shorten(cleanLine(pinName(pinned)), maxNameShown), string(pinned.Kind), pinned.Status(),
			newest.Digest[:min(12, len(newest.Digest))], newest.Time.Local().Format(time.DateTime)})
	}
	for _, server := range servers {
		rows = append(rows, []string{shorten(cleanLine(server), maxNameShown), "approved definitions",
			fmt.Sprint(count[server])})
	}
	f.IO.Out.columns("NAME KIND STATUS DIGEST RECORDED", rows)
	switch waiting := len(quarantinedPins(pins)); {
	case len(pins) == 0:
		f.IO.Err.printf("No gateway has recorded definitions yet.")
	case waiting > 0:
		f.IO.Err.printf("Quarantined: %s. Compare with \"patchbay gateway pins --diff\", approve with "+
			"\"patchbay gateway approve --pins NAME\".", counted(waiting, "definition"))
	}
}

// maxDiffShown bounds the lines of one definition on a screen.
const maxDiffShown = 200

// showPins prints definitions with their differences.
func showPins(f *factory, pins []*pin.Pin) {
	for _, pinned := range pins {
		f.IO.Out.printf("%s (%s, %s)", shorten(cleanLine(pinName(pinned)), maxNameShown), pinned.Kind, pinned.Status())
		lines := pinned.Diff()
		for _, line := range lines[:min(len(lines), maxDiffShown)] {
			f.IO.Out.printf("  %s", cleanLine(line))
		}
		if len(lines) > maxDiffShown {
			f.IO.Out.printf("  ! %d more lines: see them with --json", len(lines)-maxDiffShown)
		}
	}
}

// pinNames returns names that commands accept for pins: those of servers, and of definitions like the typed one.
func pinNames(pins []*pin.Pin, typed string) []string {
	var servers, definitions []string
	for _, pinned := range pins {
		servers = append(servers, pinned.Server)
		if spell.Nearest(typed, []string{pinName(pinned)}) != "" {
			definitions = append(definitions, pinName(pinned))
		}
	}
	slices.Sort(servers)
	return append(slices.Compact(servers), definitions...)
}

// completePins completes names of pins.
func completePins(f *factory, quarantined bool) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		_, pins, err := namedPins(cmd.Context(), f, nil)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, pinned := range pins {
			if quarantined && len(pinned.Pending) == 0 {
				continue
			}
			for _, name := range []string{cleanLine(pinned.Server), cleanLine(pinName(pinned))} {
				if strings.HasPrefix(name, typed) && !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
