package cmdutil

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

// NoArguments refuses arguments.
func NoArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return exit.UsageError(fmt.Errorf("unexpected argument %q", args[0]))
	}
	return nil
}

// A ConfigEntry is a server in a client configuration.
type ConfigEntry struct {
	Type    string            `json:"type,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
}

// ClientConfig returns a configuration with a server in a member: mcpServers for most clients.
func ClientConfig(member, name string, server ConfigEntry) string {
	b, _ := json.MarshalIndent(map[string]any{member: map[string]any{name: server}}, "", "  ") // texts only
	return string(b)
}
