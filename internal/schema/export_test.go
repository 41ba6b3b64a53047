package schema

// StepsLeft validates and tells how much of the budget is left.
func StepsLeft(s *Schema, instance []byte) int {
	e := evaluation{doc: instance, steps: MaxSteps, dynamic: s.dynamic}
	if _, ok := e.value(s.root, skipSpace(instance, 0), nil); !ok {
		_ = e.explain(s.root, skipSpace(instance, 0))
	}
	return e.steps
}
