package kube

// ownKeys are the labels and annotations of people's that Muster reads from pods and from what makes them.
var ownKeys = []string{LabelGang, LabelQueue, LabelTier, AnnotationSize, AnnotationMin, AnnotationWithin, AnnotationPrefer, AnnotationRunTime, AnnotationDeadline, AnnotationLoss,
	AnnotationMovable, AnnotationSaves, AnnotationConverge, AnnotationModel, AnnotationSpeed, AnnotationIsolation, AnnotationMemory, AnnotationCores, AnnotationPrompt}
