from .choice import Choices as Choices, Chosen as Chosen, choose as choose
