//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"

	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
)

// gatewayAt executes the action of a step of the gateway. It is the process of the gateway.
func gatewayAt(dir, upstream, step string) {
	plan{dir, upstream, step}.execute(func(signal syscall.Signal) { signalUpstream(dir, upstream, signal) },
		func(err error) { fmt.Fprintln(os.Stderr, "panic: the action of a step failed:", err) })
}

// frontSteps executes the actions of the steps at which the gateway has read a call.
func frontSteps(dir string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var message struct {
			Method string
			Params struct {
				Name           string
				InputResponses json.RawMessage
			}
		}
		if json.Unmarshal(body, &message) == nil && message.Method == "tools/call" {
			step := stepArrived
			if message.Params.InputResponses != nil {
				step = stepContinued
			}
			upstream, _, _ := strings.Cut(message.Params.Name, "__")
			gatewayAt(dir, upstream, step)
		}
		next.ServeHTTP(w, r)
	})
}

// hostSteps executes the actions of the steps of a call within the host.
type hostSteps struct{ dir string }

// Decide allows everything.
func (s hostSteps) Decide(_ context.Context, a *policy.Action) policy.Decision {
	if a.Kind == policy.ActionCall {
		gatewayAt(s.dir, a.Server, stepDecided)
	}
	return policy.Decision{Do: policy.OutcomeAllow}
}

// Needs makes the host ask before each call.
func (s hostSteps) Needs(policy.ActionKind) policy.Fields { return policy.FieldTime }

// Epoch returns 1: the policy does not change.
func (s hostSteps) Epoch() uint64 { return 1 }

// Record is called when the host has the result of a call.
func (s hostSteps) Record(r *event.Record) error {
	if r.Kind == policy.ActionCall && r.Event == event.End {
		gatewayAt(s.dir, r.Server, stepRecorded)
	}
	return nil
}
