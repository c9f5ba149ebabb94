"""Pictures of plans, dues, histories, consumers, warehouses and simulations; without matplotlib, a sentence."""
