"""Chat templates that exercise what each family's own template relies on."""

# Headers, trimmed contents, BOS from the template, an optional system turn with the date.
LLAMA3 = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system = messages[0]['content'] | trim %}
    {%- set turns = messages[1:] %}
{%- else %}
    {%- set system = '' %}
    {%- set turns = messages %}
{%- endif %}
{%- if not date is defined %}
    {%- set date = strftime_now('%d %b %Y') %}
{%- endif %}
{{- '<|start|>system<|end|>\\n\\nToday: ' + date + '\\n' + system + '<|eot|>' }}
{%- for turn in turns %}
    {%- if turn.role == 'tool' %}
        {{- raise_exception('tools are not for this model') }}
    {%- endif %}
    {{- '<|start|>' + turn['role'] + '<|end|>\\n\\n' + turn['content'] | trim + '<|eot|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|end|>\\n\\n' }}
{%- endif %}
"""

# Strictly alternating turns in brackets; the system prompt moves into the last user turn.
MISTRAL = """{%- if messages[0].role == 'system' -%}
    {%- set system = messages[0].content -%}
    {%- set loop_messages = messages[1:] -%}
{%- else -%}
    {%- set loop_messages = messages -%}
{%- endif -%}
{{- bos_token -}}
{%- for message in loop_messages -%}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('roles must alternate user/assistant') -}}
    {%- endif -%}
    {%- if message.role == 'user' -%}
        {%- if loop.last and system is defined -%}
            {{- '[INST] ' + system + '\\n\\n' + message.content + ' [/INST]' -}}
        {%- else -%}
            {{- '[INST] ' + message.content + ' [/INST]' -}}
        {%- endif -%}
    {%- elif message.role == 'assistant' -%}
        {{- ' ' + message.content + eos_token -}}
    {%- endif -%}
{%- endfor -%}
"""

# ChatML with a default system turn, tool calls as JSON, and runs of tool results in one user turn.
QWEN = """{%- if tools %}
    {{- 'TOOLS ' }}{{ tools | tojson }}
{%- endif %}
{%- if messages[0].role != 'system' %}
    {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' }}
{%- endif %}
{%- set state = namespace(turns=0) %}
{%- for message in messages %}
    {%- set state.turns = state.turns + 1 %}
    {%- if message.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\\n<tool_response>\\n' + message.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}
            {{- '<|im_end|>\\n' }}
        {%- endif %}
        {%- continue %}
    {%- endif %}
    {{- '<|im_start|>' + message.role }}
    {%- if message.content is defined %}
        {{- '\\n' + message.content }}
    {%- endif %}
    {%- for call in message.tool_calls or [] %}
        {{- '\\n<tool_call>\\n' }}{{ call.function | tojson(indent=2) }}{{- '\\n</tool_call>' }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

# The training tag, whose body has a scope of its own, and an early end of the loop.
GENERATION = """{% set seen = 'outside' %}
{% for message in messages %}
    {% if message.role == 'assistant' %}
        {% generation %}
{% set seen = 'inside' %}[{{ message.content }}|{{ eos_token }}|{{ pad_token }}|{{ nothing }}]
        {% endgeneration %}
    {% elif message.role == 'tool' %}
        {% break %}
    {% else %}
({{ message | tojson }})
    {% endif %}
{% endfor %}
{{ seen }}{{ documents is none }}{{ dict(a=1) | tojson }}
"""

FAMILIES = {"llama3": LLAMA3, "mistral": MISTRAL, "qwen": QWEN, "generation": GENERATION}
