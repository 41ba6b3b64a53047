package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// oldestNode is the oldest major version of Node that the TypeScript SDKs
// support.
const oldestNode = 20

// findNode returns the Node binary for the TypeScript servers: the one that the
// conformance module pins if it is installed, else the system's.
func findNode(ctx context.Context) (path, version string, err error) {
	if _, err := os.Stat(filepath.Join("node_modules", "@modelcontextprotocol", "sdk")); err != nil {
		return "", "", errors.New("the SDKs are not installed (npm ci)")
	}
	path = filepath.Join("..", "conformance", "node_modules", "node", "bin", "node")
	if _, err := os.Stat(path); err != nil {
		if path, err = exec.LookPath("node"); err != nil {
			return "", "", errors.New("node is not installed")
		}
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("%s --version: %w", path, err)
	}
	version = strings.TrimSpace(string(out))
	major, _, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	if n, err := strconv.Atoi(major); err != nil || n < oldestNode {
		return "", "", fmt.Errorf("node version %s is too old: need %d or later", version, oldestNode)
	}
	return path, version, nil
}

// findNode looks for Node if a server needs it. Without Node it returns an
// error if such a server was selected by name, and omits the server otherwise.
func (b *bench) findNode(ctx context.Context, selected bool) error {
	var others []server
	for _, s := range b.servers {
		if s.script == "" {
			others = append(others, s)
		}
	}
	if len(others) == len(b.servers) {
		return nil
	}
	var err error
	var version string
	if b.node, version, err = findNode(ctx); err == nil {
		b.notes = append(b.notes, "The TypeScript SDKs run on Node "+version)
		return nil
	}
	if selected {
		return fmt.Errorf("TypeScript servers: %w", err)
	}
	b.notes = append(b.notes, "The TypeScript SDKs are not measured: "+err.Error())
	b.servers = others
	return nil
}
