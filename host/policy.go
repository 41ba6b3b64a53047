package host

// A Verdict is the decision of a user about an [policy.Action]; see [Options.Consent].
type Verdict struct {
	// Allow allows the action.
	Allow bool
	// Reason is the reason of a refusal. The caller receives it.
	Reason string
}
