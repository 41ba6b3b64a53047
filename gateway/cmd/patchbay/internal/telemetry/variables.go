package telemetry

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/propagation"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

// Signals, as they are called in the names of variables.
const (
	signalTraces  = "TRACES"
	signalMetrics = "METRICS"
)

// Values of OTEL_TRACES_EXPORTER and OTEL_METRICS_EXPORTER.
const (
	exporterOTLP       = "otlp"
	exporterPrometheus = "prometheus"
	exporterNone       = "none"
)

// The variables that are checked here. The SDK, which reads others such as OTEL_METRIC_EXPORT_INTERVAL,
// reports errors by its log: see sdkLog.
const (
	varDisabled    = "OTEL_SDK_DISABLED"
	varProtocol    = "OTEL_EXPORTER_OTLP_PROTOCOL"
	varSampler     = "OTEL_TRACES_SAMPLER"
	varSamplerArg  = "OTEL_TRACES_SAMPLER_ARG"
	varPropagators = "OTEL_PROPAGATORS"
)

// A request lists the exporters that the variables select.
type request struct {
	traces, metrics bool // export by OTLP
	prometheus      bool // metrics for Prometheus
	propagator      propagation.TextMapPropagator
}

// requested returns the exporters that the variables select, and an error for invalid variables.
func requested() (r request, err error) {
	if strings.EqualFold(strings.TrimSpace(os.Getenv(varDisabled)), "true") {
		return request{}, nil
	}
	traces, tracesErr := exportersOf(signalTraces, exporterOTLP)
	metrics, metricsErr := exportersOf(signalMetrics, exporterOTLP, exporterPrometheus)
	r.traces, r.metrics = slices.Contains(traces, exporterOTLP), slices.Contains(metrics, exporterOTLP)
	r.prometheus = slices.Contains(metrics, exporterPrometheus)
	err = errors.Join(tracesErr, metricsErr)
	if r.traces {
		propagator, invalid := propagatorOf(os.Getenv(varPropagators))
		r.propagator = propagator
		err = errors.Join(err, checkOTLP(signalTraces), checkSampler(), invalid)
	}
	if r.metrics {
		err = errors.Join(err, checkOTLP(signalMetrics))
	}
	return r, firstOf(err)
}

// firstOf returns the first of joined errors: a variable for both signals fails twice.
func firstOf(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return firstOf(all.Unwrap()[0])
	}
	return err
}

// exportersOf returns the exporters of a signal. Without OTEL_<SIGNAL>_EXPORTER it is OTLP if a
// variable contains the endpoint: the default endpoint must be requested.
func exportersOf(signal string, allowed ...string) ([]string, error) {
	name := "OTEL_" + signal + "_EXPORTER"
	value := strings.TrimSpace(os.Getenv(name))
	if value == "" {
		if variable, _ := signalVariable(signal, varEndpoint); variable != "" {
			return []string{exporterOTLP}, nil
		}
		return nil, nil
	}
	all := list(value)
	for _, exporter := range all {
		if !slices.Contains(allowed, exporter) && exporter != exporterNone {
			return nil, fmt.Errorf("invalid %s %.64q: must be %s or %s", name, value, strings.Join(allowed, ", "),
				exporterNone)
		}
	}
	if slices.Contains(all, exporterNone) {
		return nil, nil
	}
	return all, nil
}

// list returns the values of a variable that are separated by commas.
func list(value string) (all []string) {
	for element := range strings.SplitSeq(value, ",") {
		if element = strings.TrimSpace(element); element != "" {
			all = append(all, element)
		}
	}
	return all
}

// signalVariable returns the name and the value of a variable of OTLP for a signal. The variable of
// the signal, such as OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, overrides the variable for all signals.
func signalVariable(signal, name string) (variable, value string) {
	const prefix = "OTEL_EXPORTER_OTLP_"
	for _, variable := range []string{prefix + signal + "_" + strings.TrimPrefix(name, prefix), name} {
		if value := strings.TrimSpace(os.Getenv(variable)); value != "" {
			return variable, value
		}
	}
	return "", ""
}

// checkOTLP returns an error for a protocol that is not supported, and for an invalid endpoint,
// which the exporter would replace by its default.
func checkOTLP(signal string) error {
	const protocol = "http/protobuf"
	if variable, value := signalVariable(signal, varProtocol); variable != "" && value != protocol {
		return fmt.Errorf("invalid %s %.64q: must be %s, which collectors receive at port 4318", variable, value,
			protocol)
	}
	variable, value := signalVariable(signal, varEndpoint)
	if variable == "" {
		return nil
	}
	u, err := url.Parse(value)
	switch { // without the value, which may contain a password, also without a scheme
	case err != nil || !netx.IsHTTP(u):
		return fmt.Errorf("invalid %s: must be an http or https URL, such as http://127.0.0.1:4318", variable)
	case u.User != nil || u.RawQuery != "":
		return fmt.Errorf("invalid %s: must have neither a user nor a query; use OTEL_EXPORTER_OTLP_HEADERS", variable)
	}
	return nil
}

// samplers are the values of OTEL_TRACES_SAMPLER.
var samplers = []string{"always_on", "always_off", "traceidratio", "parentbased_always_on", "parentbased_always_off",
	"parentbased_traceidratio"}

// checkSampler returns an error for a sampler that the SDK would replace by its default.
func checkSampler() error {
	sampler := strings.ToLower(strings.TrimSpace(os.Getenv(varSampler)))
	if sampler == "" {
		return nil
	}
	if !slices.Contains(samplers, sampler) {
		return fmt.Errorf("invalid %s %.64q: must be one of %s", varSampler, sampler, strings.Join(samplers, ", "))
	}
	arg := strings.TrimSpace(os.Getenv(varSamplerArg))
	if arg == "" || !strings.HasSuffix(sampler, "traceidratio") {
		return nil
	}
	if ratio, err := strconv.ParseFloat(arg, 64); err != nil || !(ratio >= 0 && ratio <= 1) {
		return fmt.Errorf("invalid %s %.64q: must be a number from 0 to 1", varSamplerArg, arg)
	}
	return nil
}

// propagatorOf returns the propagator of OTEL_PROPAGATORS. The default omits baggage, which
// third-party servers would receive.
func propagatorOf(value string) (propagation.TextMapPropagator, error) {
	if strings.TrimSpace(value) == "" {
		return propagation.TraceContext{}, nil
	}
	var all []propagation.TextMapPropagator
	for _, name := range list(value) {
		switch name {
		case "tracecontext":
			all = append(all, propagation.TraceContext{})
		case "baggage":
			all = append(all, propagation.Baggage{})
		case exporterNone:
		default:
			return nil, fmt.Errorf("invalid %s %.64q: must be tracecontext, baggage or %s", varPropagators, value,
				exporterNone)
		}
	}
	if len(all) == 1 {
		return all[0], nil
	}
	return propagation.NewCompositeTextMapPropagator(all...), nil
}
