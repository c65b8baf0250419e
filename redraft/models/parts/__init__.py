"""Parts of a model beside its network: drafters, taggers, error head, attribute classifier, encoder of sources."""
